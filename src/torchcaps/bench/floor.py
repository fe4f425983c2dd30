"""PyTorch's own convolutions: what a network would cost if it were nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.models import Model


class ConvolutionFloor(nn.Module):
    """The convolutions of a model in their order with ReLU between, and pooling where the model has it.

    They are PyTorch's, whatever the model itself computes its convolutions with, and their weights lie in memory as
    :func:`create_model` lays them, channels side by side, which is PyTorch's faster way.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                layers += [own_convolution(module), nn.ReLU()]
            elif isinstance(module, nn.MaxPool2d):
                layers.append(module)
        last = max(index for index, layer in enumerate(layers) if isinstance(layer, nn.Conv2d))
        self.layers = nn.Sequential(*layers[: last + 1])

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps


def own_convolution(layer: nn.Conv2d) -> nn.Conv2d:
    """PyTorch's convolution with the settings of this one and its weights, copied."""
    own = nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,  # type: ignore[arg-type]
        layer.stride,  # type: ignore[arg-type]
        layer.padding,  # type: ignore[arg-type]
        layer.dilation,  # type: ignore[arg-type]
        layer.groups,
        layer.bias is not None,
    )
    own.load_state_dict(layer.state_dict())
    return own.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def use_own_convolutions(model: Model) -> None:
    """Put PyTorch's convolutions into a model, whatever it had for them."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d) and type(child) is not nn.Conv2d:
                setattr(module, name, own_convolution(child))
