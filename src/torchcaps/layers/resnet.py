"""A residual network for small images, in front of capsule layers.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2016, https://arxiv.org/abs/1512.03385, section 4.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.kernels.batch_norm import batch_norm_relu
from torchcaps.layers.conv2d import Conv2d, Sequential

SHORTCUTS = ("pad", "convolution")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch normalization, and a shortcut around them.

    Args:
        channels, width: channels before and after the block.
        stride: of the first convolution.
        shortcut: if the shapes differ, ``pad`` takes every second pixel and fills new channels with zeros, without
            parameters; ``convolution`` is a 1x1 convolution with batch normalization.

    Shapes: (B, channels, H, W) to (B, width, ceil(H / stride), ceil(W / stride)).
    """

    def __init__(self, channels: int, width: int, *, stride: int = 1, shortcut: str = "pad") -> None:
        super().__init__()
        if shortcut not in SHORTCUTS:
            raise unknown_name("shortcut", shortcut, SHORTCUTS)
        self.stride, self.added = stride, width - channels
        self.first = Conv2d(channels, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut: nn.Module | None = None
        if shortcut == "convolution" and (stride > 1 or self.added):
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, features: Tensor) -> Tensor:
        maps: Tensor = batch_norm_relu(self.first(features), self.first_norm)
        return batch_norm_relu(self.second(maps), self.second_norm, self._keep(features))

    def _keep(self, features: Tensor) -> Tensor:
        if self.shortcut is not None:
            kept: Tensor = self.shortcut(features)
            return kept
        if self.stride == 1 and not self.added:
            return features  # F.pad would copy them
        before = self.added // 2
        return F.pad(features[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before))


class ResNet(Sequential):
    """A 3x3 convolution and stages of basic blocks; every stage but the first halves the grid.

    Args:
        channels: channels of the images.
        widths: channels of each stage.
        blocks: number of blocks of each stage; (3, 3, 3) is ResNet-20 without its classifier.
        shortcut: as in :class:`BasicBlock`.

    Shapes: (B, channels, H, W) to (B, widths[-1], H', W'); three stages reduce 32 pixels to 8.

    >>> network = ResNet(3)
    >>> network(torch.zeros(2, 3, 32, 32)).shape, sum(each.numel() for each in network.parameters())
    (torch.Size([2, 64, 8, 8]), 269072)
    """

    def __init__(
        self,
        channels: int,
        *,
        widths: tuple[int, ...] = (16, 32, 64),
        blocks: tuple[int, ...] = (3, 3, 3),
        shortcut: str = "pad",
    ) -> None:
        if not widths or len(widths) != len(blocks) or min(*widths, *blocks) < 1:
            raise TorchcapsError(
                f"a residual network needs a width and at least one block per stage, got widths {tuple(widths)} and "
                f"blocks {tuple(blocks)}"
            )
        layers: list[nn.Module] = [
            Conv2d(channels, widths[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        ]
        below = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(BasicBlock(below, width, stride=stride, shortcut=shortcut))
                below = width
        super().__init__(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")


def feature_shape(network: nn.Module, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return channels, height and width of a network's feature maps, found with one blank image.

    >>> feature_shape(ResNet(1), (1, 28, 28))
    (64, 7, 7)
    """
    was_training = network.training
    with torch.no_grad():
        maps = network.eval()(torch.zeros(1, *image_shape))
    network.train(was_training)
    _, channels, height, width = maps.shape
    return channels, height, width
