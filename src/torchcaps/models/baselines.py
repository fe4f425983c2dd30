"""Convolutional baselines with the same interface as capsule networks.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, section 3.
"""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.layers import Conv2d
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.registry import ModelRecord, Recipe, models


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
    """Three convolutions and two hidden layers: 35,445,522 parameters at 40x40.

    Args:
        filters: output channels of the first two convolutions; the third has half as many.
        kernel: kernel size of all convolutions.
        hidden: units of the two hidden layers.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 256,
        kernel: int = 5,
        hidden: tuple[int, int] = (328, 192),
    ) -> None:
        grid = [conv_output_size(side, (kernel, 1), (kernel, 1), (kernel, 1)) for side in image_shape[1:]]
        super().__init__(image_shape, classes)
        self.layers = nn.Sequential(
            Conv2d(image_shape[0], filters, kernel),
            nn.ReLU(),
            Conv2d(filters, filters, kernel),
            nn.ReLU(),
            Conv2d(filters, filters // 2, kernel),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(filters // 2 * grid[0] * grid[1], hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
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
        laptop={"filters": 32, "hidden": (164, 96)},
        capsules=False,
    )
)
