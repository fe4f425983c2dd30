"""CapsNet: a convolution, primary capsules, class capsules with dynamic routing, and a decoder.

Sabour, Frosst, Hinton: Dynamic Routing Between Capsules, 2017, https://arxiv.org/abs/1710.09829.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.layers import CapsuleLayer, CapsuleStack, Conv2d, PrimaryCapsules, nonlinearities, transforms
from torchcaps.models.base import conv_output_size
from torchcaps.models.capsule_model import CapsuleModel, build_decoder, length_score, unsquashed_length_score
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

# yang2021 does not give the slope; 0.2 is the default of the authors' framework.
RECTIFIERS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "leaky-relu": partial(nn.LeakyReLU, 0.2)}

# Squashed vectors give votes about 100 times smaller than matrix poses, so EM routing needs a smaller variance floor.
SCALED: dict[str, dict[str, Any]] = {"em": {"variance_floor": 0.01}}


class CapsNet(CapsuleModel):
    """CapsNet, the baseline of most capsule papers, with configurable components.

    Parameters at 28, 36 and 40 pixels: 6,804,224, 9,425,664 and 11,227,904, and with the decoder 8,215,568,
    11,361,808 and 13,475,648.

    Args:
        image_shape: channels, height, width.
        classes: number of classes.
        filters: output channels of the first convolution.
        types: number of primary capsule types.
        primary_size: size of a primary capsule's pose.
        class_size: size of a class capsule's pose.
        kernel: kernel size of both convolutions.
        rectifier: activation function after the first convolution, ``relu`` or ``leaky-relu``.
        transform: name of a registered transform: ``dense``, a matrix for each pair of capsules, or ``shared``, one
            for each class.
        routing: name of the routing to the class capsules.
        routing_options: settings of the routing, such as ``{"iterations": 2}``.
        nonlinearity: name of a registered nonlinearity: ``squash``, ``exponential`` (chen2019) or ``none``.
        decoder: ``conditional`` reconstructs from one class capsule, ``normal`` from all; ``none`` for no decoder.
        hidden: units of the decoder's two hidden layers.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 256,
        types: int = 32,
        primary_size: int = 8,
        class_size: int = 16,
        kernel: int = 9,
        rectifier: str = "relu",
        transform: str = "dense",
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        nonlinearity: str = "squash",
        decoder: str = "conditional",
        hidden: tuple[int, int] = (512, 1024),
    ) -> None:
        if min(filters, types, primary_size, class_size, kernel, *hidden) < 1:
            raise TorchcapsError("CapsNet needs filters, types, sizes, kernel and hidden units of at least 1")
        if rectifier not in RECTIFIERS:
            raise unknown_name("rectifier", rectifier, RECTIFIERS)
        height, width = (conv_output_size(side, (kernel, 1), (kernel, 2)) for side in image_shape[1:])
        squashing = nonlinearities.get(nonlinearity)
        voting = transforms.get(transform).build(height * width * types, classes, primary_size, class_size)
        # The length of a squashed capsule serves as its activation.
        shape = replace(voting.shape, activations=squashing.bounded)
        routed = create_routing(routing, shape, **SCALED.get(routing, {}) | (routing_options or {}))
        super().__init__(
            image_shape,
            classes,
            features=nn.Sequential(Conv2d(image_shape[0], filters, kernel), RECTIFIERS[rectifier]()),
            primary=PrimaryCapsules(
                filters,
                types,
                primary_size,
                kernel=kernel,
                stride=2,
                nonlinearity=squashing.primary or squashing.function,
                activated=routed.needs_activation,
            ),
            capsules=CapsuleStack(CapsuleLayer(voting, routed, squashing.function)),
            score=length_score if squashing.bounded else unsquashed_length_score,
            decoder=build_decoder(decoder, classes, class_size, image_shape, hidden),
        )


models.add(
    ModelRecord(
        name="capsnet",
        description="two convolutions, 8-D primary capsules, 16-D class capsules, dynamic routing, decoder",
        paper="sabour2017",
        build=CapsNet,
        recipe=Recipe(loss="margin", reconstruction_weight=0.0005),
        laptop={"filters": 64, "types": 8, "hidden": (256, 512)},
    )
)
