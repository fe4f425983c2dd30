"""Convolutional baselines with the same interface as capsule networks.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, section 3.
"""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.layers import Conv2d
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.registry import ModelRecord, Recipe, models

PADDINGS = ("valid", "same")


class ConvNetAvg(Model):
    """CapsNet's two convolutions, global average pooling and a linear layer: 5,332,234 parameters.

    Args:
        filters: output channels of both convolutions.
        kernel: kernel size of both convolutions.
    """

    def __init__(self, image_shape: tuple[int, int, int], classes: int, *, filters: int = 256, kernel: int = 9) -> None:
        for side in image_shape[1:]:
            conv_output_size(side, (kernel, 1), (kernel, 2))
        super().__init__(image_shape, classes)
        self.features = nn.Sequential(
            Conv2d(image_shape[0], filters, kernel),
            nn.ReLU(),
            Conv2d(filters, filters, kernel, stride=2),
            nn.ReLU(),
        )
        self.head = nn.Linear(filters, classes)

    def classify(self, images: Tensor) -> Output:
        logits = self.head(self.features(images).mean((2, 3)))
        return Output(logits.softmax(1), logits)


class ConvNetFC(Model):
    """Three convolutions and two hidden layers: 35,445,522 parameters at 40x40, or at 28x28 with padding.

    Args:
        filters: output channels of the first two convolutions; the third has half as many.
        kernel: kernel size of all convolutions.
        hidden: units of the two hidden layers.
        padding: ``valid`` for none, or ``same`` to keep the size of the image, as sabour2017's count implies.
        dropout: probability to drop a unit of the last hidden layer in training.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 256,
        kernel: int = 5,
        hidden: tuple[int, int] = (328, 192),
        padding: str = "valid",
        dropout: float = 0.0,
    ) -> None:
        if padding not in PADDINGS:
            raise unknown_name("padding", padding, PADDINGS)
        if padding == "same" and kernel % 2 == 0:
            raise TorchcapsError(f"padding 'same' needs an odd kernel, got {kernel}")
        windows = [(kernel, 1)] * 3 if padding == "valid" else []
        grid = [conv_output_size(side, *windows) for side in image_shape[1:]]
        margin = 0 if padding == "valid" else kernel // 2
        super().__init__(image_shape, classes)
        self.layers = nn.Sequential(
            Conv2d(image_shape[0], filters, kernel, padding=margin),
            nn.ReLU(),
            Conv2d(filters, filters, kernel, padding=margin),
            nn.ReLU(),
            Conv2d(filters, filters // 2, kernel, padding=margin),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(filters // 2 * grid[0] * grid[1], hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Sequential(nn.ReLU(), nn.Dropout(dropout)),  # one entry: saved weights are numbered by entry
            nn.Linear(hidden[1], classes),
        )

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


models.add(
    ModelRecord(
        name="convnet-avg",
        description="two convolutions, global average, linear layer",
        paper="gu2021",
        build=ConvNetAvg,
        recipe=Recipe(loss="cross-entropy"),
        laptop={"filters": 64},
        capsules=False,
    )
)
models.add(
    ModelRecord(
        name="convnet-fc",
        description="three convolutions, two hidden layers",
        paper="gu2021",
        build=ConvNetFC,
        recipe=Recipe(loss="cross-entropy"),
        # A quarter of the channels; the hidden layers keep the ratio to the parameters of CapsNet (gu2021, table 1).
        laptop={"filters": 64, "hidden": (256, 150)},
        earlier_laptop=({"filters": 32, "hidden": (164, 96)},),
        capsules=False,
    )
)
