"""Backbones: networks that turn large images into feature maps of the size that the papers' networks were made for.

The papers' images have 28 to 48 pixels. On larger images their networks would have huge grids of capsules: CapsNet has
3,136 capsules of each type at 128 pixels instead of 36. With a backbone, a network is built for the feature maps of the
backbone as if they were its images. The decoder then draws at the size of these maps, and its drawing is enlarged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.layers import Conv2d, Decoder, MeanImage, Sequential, StridedStem
from torchcaps.models.base import Model

LARGEST = 48  # pixels that a network takes without a backbone; no paper has larger images
WORKING = 28  # pixels of the feature maps: CapsNet then has 6x6 capsules of each type, as in the paper
CHANNELS = {"strided": 4, "residual": 16}  # of the feature maps; more make the 9x9 kernels of CapsNet slow
BACKBONES = ("auto", "none", "strided", "residual")

ImageShape = tuple[int, int, int]


def choose_backbone(image_shape: ImageShape) -> str:
    """Return the name of the backbone for images of this shape: ``strided`` above 48 pixels, otherwise ``none``.

    >>> choose_backbone((1, 28, 28)), choose_backbone((3, 128, 96))
    ('none', 'strided')
    """
    return "strided" if max(image_shape[1:]) > LARGEST else "none"


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalization, added to their input.

    Shapes: (B, C, H, W) to the same.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = Sequential(
            Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, features: Tensor) -> Tensor:
        added: Tensor = features + self.layers(features)
        return added.relu()


class Backbone(nn.Module):
    """A module from images to feature maps, trained or frozen.

    Args:
        network: maps images (B, C, H, W) to feature maps (B, C', H', W'), or to several of them, as the models of timm
            with ``features_only=True`` do: then the map nearest to 28 pixels is used.
        feature_shape: channels, height and width of the feature maps.
        frozen: keep its weights and the statistics of its normalization as they are.
        pick: index of the feature map if there are several.
    """

    def __init__(
        self, network: nn.Module, feature_shape: ImageShape, *, frozen: bool = False, pick: int | None = None
    ) -> None:
        super().__init__()
        self.network, self.feature_shape, self.frozen, self.pick = network, feature_shape, frozen, pick
        if frozen:
            network.requires_grad_(False)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        features = self.network(images)
        chosen: Tensor = features if self.pick is None else features[self.pick]
        return chosen


def build_backbone(backbone: str | nn.Module, image_shape: ImageShape, *, frozen: bool = False) -> Backbone | None:
    """Build a backbone for images of this shape, by name or from a module; return None if there is none.

    Args:
        backbone: ``auto``, see :func:`choose_backbone`; ``none``; ``strided``, one strided convolution; ``residual``,
            a strided convolution and two residual blocks; or a module, see :class:`Backbone`.
        image_shape: channels, height and width of the images.
        frozen: do not train the backbone.
    """
    if isinstance(backbone, nn.Module):
        return _wrap_module(backbone, image_shape, frozen)
    if backbone not in BACKBONES:
        known = unknown_name("backbone", str(backbone), BACKBONES)
        raise TorchcapsError(f"{known}; or, in Python, a module such as timm.create_model(NAME, features_only=True)")
    name = choose_backbone(image_shape) if backbone == "auto" else backbone
    if name == "none":
        return None
    channels = CHANNELS[name]
    network: nn.Module = StridedStem(image_shape, channels, WORKING)
    if name == "residual":
        network = nn.Sequential(network, ResidualBlock(channels), ResidualBlock(channels))
    return Backbone(network, (channels, WORKING, WORKING), frozen=frozen)


def _wrap_module(module: nn.Module, image_shape: ImageShape, frozen: bool) -> Backbone:
    """Find out the shape of a module's feature maps with one blank image."""
    was_training = module.training
    device = next((parameter.device for parameter in module.parameters()), None)
    with torch.no_grad():
        found = module.eval()(torch.zeros(1, *image_shape, device=device))
    module.train(was_training)
    maps = list(found) if isinstance(found, Sequence) else [found]
    if not maps or not all(isinstance(each, Tensor) and each.ndim == 4 for each in maps):
        shapes = [tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in maps]
        raise TorchcapsError(
            f"a backbone should return feature maps (B, C, H, W), {type(module).__name__} returns {shapes}: remove its "
            "pooling and its classifier"
        )
    pick = min(range(len(maps)), key=lambda number: abs(maps[number].shape[2] - WORKING))
    _, channels, height, width = maps[pick].shape
    return Backbone(
        module, (channels, height, width), frozen=frozen, pick=pick if isinstance(found, Sequence) else None
    )


def add_backbone(model: Model, backbone: Backbone, image_shape: ImageShape) -> None:
    """Put a backbone below a model that was built for its feature maps; the model then takes ``image_shape``."""
    model.image_shape, model.backbone = image_shape, backbone
    if isinstance(model.preprocess, MeanImage):
        model.preprocess = MeanImage(image_shape)
    if model.decoder is not None:
        old = model.decoder
        model.decoder = Decoder(
            old.classes,
            old.size,
            image_shape,
            hidden=old.hidden,
            conditional=old.conditional,
            drawn_shape=(image_shape[0], WORKING, WORKING),
        )


def describe_backbone(name: str, image_shape: ImageShape) -> str:
    """Describe a backbone by name in a few words; empty if there is none.

    >>> describe_backbone("strided", (3, 128, 128))
    'strided: 128x128 images become 4 feature maps of 28x28'
    """
    if name == "none":
        return ""
    height, width = image_shape[1:]
    return f"{name}: {height}x{width} images become {CHANNELS[name]} feature maps of {WORKING}x{WORKING}"
