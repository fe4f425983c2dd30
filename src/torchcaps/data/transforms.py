"""Random changes of training images, a whole batch at a time.

An augmentation is written as text, ``"shift=2"`` or ``"rotate=20,shift=2,flip=0.5"``, so that a run's settings hold
it. The caller seeds one generator; each change draws from its own, derived from that one and from the change's name.
So the same generator state gives the same images, and adding a flip leaves the shifts as they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from torchcaps.data.geometry import place, rotation, scaling, shearing, warp
from torchcaps.errors import TorchcapsError, unknown_name

Change = Callable[[Tensor, float, Generator], Tensor]
Matrix = Callable[[int, float, Generator], Tensor]


def between(low: float, high: float, count: int, generator: Generator) -> Tensor:
    """Uniform random numbers. Shape (count,)."""
    return torch.empty(count).uniform_(low, high, generator=generator)


def rotate(count: int, degrees: float, generator: Generator) -> Tensor:
    """Turn by up to ``degrees`` either way."""
    return rotation(between(-degrees, degrees, count, generator))


def shear(count: int, degrees: float, generator: Generator) -> Tensor:
    """Slant along x by up to ``degrees`` either way."""
    angle = between(-degrees, degrees, count, generator)
    return shearing(angle, torch.zeros(count))


def scale(count: int, amount: float, generator: Generator) -> Tensor:
    """Scale each axis by a factor of its own, 1 - amount to 1 + amount."""
    x = between(1 - amount, 1 + amount, count, generator)
    return scaling(x, between(1 - amount, 1 + amount, count, generator))


def shift(images: Tensor, pixels: float, generator: Generator) -> Tensor:
    """Move each image by up to ``pixels`` whole pixels along both axes; what comes in is black."""
    reach = int(pixels)
    offset = torch.randint(-reach, reach + 1, (len(images), 2), generator=generator)
    return place(images, offset.to(images.device), (images.shape[2], images.shape[3]))


def crop(images: Tensor, pixels: float, generator: Generator) -> Tensor:
    """Cut a square of ``pixels`` out of each image, anywhere."""
    size = int(pixels)
    height, width = images.shape[2:]
    check_fits(size, height, width)
    rows = torch.randint(0, height - size + 1, (len(images),), generator=generator)
    columns = torch.randint(0, width - size + 1, (len(images),), generator=generator)
    return place(images, -torch.stack([rows, columns], dim=1).to(images.device), (size, size))


def check_fits(size: int, height: int, width: int) -> None:
    """A crop must be inside its image."""
    if not 0 < size <= min(height, width):
        raise TorchcapsError(f"cannot crop {size}x{size} pixels out of {height}x{width}: choose a smaller crop")


def flip(images: Tensor, chance: float, generator: Generator) -> Tensor:
    """Mirror left to right, each image with this chance."""
    mirrored = torch.rand(len(images), generator=generator) < chance
    return torch.where(per_image(mirrored, images), images.flip(3), images)


def brightness(images: Tensor, amount: float, generator: Generator) -> Tensor:
    """Add up to ``amount``, or take it away; the result stays in [0, 1]."""
    return (images + per_image(between(-amount, amount, len(images), generator), images)).clamp_(0, 1)


def contrast(images: Tensor, amount: float, generator: Generator) -> Tensor:
    """Scale the distance to the image's mean by 1 - amount to 1 + amount; the result stays in [0, 1]."""
    factor = per_image(between(1 - amount, 1 + amount, len(images), generator), images)
    mean = images.mean(dim=(2, 3), keepdim=True)
    return mean.lerp(images, factor.expand_as(images)).clamp_(0, 1)


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """(B,) on the images' device, to go with (B, C, H, W)."""
    return values.to(images.device)[:, None, None, None]


MATRICES: dict[str, Matrix] = {"rotate": rotate, "shear": shear, "scale": scale}
CHANGES: dict[str, Change] = {
    "shift": shift,
    "crop": crop,
    "flip": flip,
    "brightness": brightness,
    "contrast": contrast,
}
# The largest amount that makes sense: beyond it the image is gone or the matrix has no inverse.
LARGEST = {"rotate": 180.0, "shear": 80.0, "scale": 0.95, "flip": 1.0, "brightness": 1.0, "contrast": 1.0}
WHOLE = ("shift", "crop")


class Augmentation:
    """Random changes: first rotate, shear and scale in one resampling, then the others as they are written.

    >>> Augmentation("crop=24,rotate=20")(torch.ones(3, 1, 28, 28), Generator().manual_seed(0)).shape
    torch.Size([3, 1, 24, 24])
    """

    def __init__(self, text: str) -> None:
        self.matrices: list[tuple[str, float]] = []
        self.changes: list[tuple[str, float]] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, amount = parse(part)
            (self.matrices if name in MATRICES else self.changes).append((name, amount))

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """(B, C, H, W) in [0, 1] to the same, or to the size of the crop."""
        seed = int(torch.randint(1 << 62, (), generator=generator))
        if self.matrices:
            product = torch.eye(2).expand(len(images), 2, 2)
            for name, amount in self.matrices:
                product = MATRICES[name](len(images), amount, own_generator(seed, name)) @ product
            images = warp(images, product.to(images.device))
        for name, amount in self.changes:
            images = CHANGES[name](images, amount, own_generator(seed, name))
        return images


def parse(part: str) -> tuple[str, float]:
    """One ``name=amount``, checked."""
    name, _, text = part.partition("=")
    if name not in MATRICES and name not in CHANGES:
        raise unknown_name("augmentation", name, [*MATRICES, *CHANGES])
    try:
        amount = float(text)
    except ValueError:
        raise TorchcapsError(f"augmentation '{part}' should be written {name}=NUMBER") from None
    if not 0 <= amount <= LARGEST.get(name, 10_000):
        raise TorchcapsError(f"augmentation '{part}' is out of range: 0 to {LARGEST.get(name, 10_000):g}")
    if name in WHOLE and amount != int(amount):
        raise TorchcapsError(f"augmentation '{part}' counts pixels: a whole number is needed")
    return name, amount


def own_generator(seed: int, name: str) -> Generator:
    """A generator for one change, independent of the other changes'.

    torch's generator looks at the lower 32 bits of its seed only, so all that matters must be mixed into those.
    """
    return Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))
