"""The plain counterpart of matrix capsules: the same kernels and strides with ReLU in place of capsules and routing.

It shows what the shape of the network alone allows, so that a trial of matrix capsules can be judged. With 32 channels
it has about as many parameters as matrix capsules of laptop size.
"""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.layers import Standardize
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.registry import ModelRecord, Recipe, models

NAME = "plain-counterpart"
FILTERS = 32
KERNELS = ((5, 2), (1, 1), (3, 2), (3, 1))  # side and stride: features, primary capsules, two capsule layers


class PlainCounterpart(Model):
    """Four convolutions with the kernels of matrix capsules, and a linear layer for the classes.

    Args:
        width: output channels of all convolutions but the first.
        batch_norm: normalize the output of each convolution.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], classes: int, *, width: int = FILTERS, batch_norm: bool = False
    ) -> None:
        super().__init__(image_shape, classes, preprocess=Standardize())
        self.layers = nn.Sequential()
        channels = [image_shape[0], FILTERS, width, width, width]
        for number, (kernel, stride) in enumerate(KERNELS):
            self.layers.append(nn.Conv2d(channels[number], channels[number + 1], kernel, stride))
            if batch_norm:
                self.layers.append(nn.BatchNorm2d(channels[number + 1]))
            self.layers.append(nn.ReLU())
        grid = [conv_output_size(side, *KERNELS) for side in image_shape[1:]]
        self.layers.extend([nn.Flatten(), nn.Linear(width * grid[0] * grid[1], classes)])

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


models.add(
    ModelRecord(
        name=NAME,
        description="matrix capsules with ReLU in place of capsules, for trials",
        paper="hinton2018",
        build=PlainCounterpart,
        recipe=Recipe(loss="cross-entropy", batch_size=32),
        capsules=False,
    )
)
