"""Batched image transforms: random augmentation, crops and affine warps.

An augmentation is given as a string, ``"shift=2"`` or ``"rotate=20,shift=2,flip=0.5"``, and is stored in the run's
config. The caller passes one generator; each transform derives its own from it and from the transform's name. The same
generator state gives the same images, and adding a flip does not change the shifts. Random numbers are drawn for the
global batch, so the result does not depend on the number of processes.

``brightness`` and ``contrast`` change the pixels, which a model that standardizes its images undoes.
``normalized-brightness`` and ``normalized-contrast`` change the input of the network after the model's preprocessing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name


@dataclass(frozen=True)
class Draws:
    """Random numbers for the slice ``part`` of a global batch of ``images`` images.

    Numbers are drawn for the global batch and then sliced, so each image gets the same ones on any number of processes.
    """

    generator: Generator
    images: int
    part: slice

    def between(self, low: float, high: float) -> Tensor:
        """Draw uniform floats. Shape (B,), with B images in the part."""
        return torch.empty(self.images).uniform_(low, high, generator=self.generator)[self.part]

    def whole(self, low: int, high: int, *, columns: int) -> Tensor:
        """Draw integers from ``low`` to ``high`` inclusive. Shape (B, columns)."""
        return torch.randint(low, high + 1, (self.images, columns), generator=self.generator)[self.part]


Change = Callable[[Tensor, float, Draws], Tensor]
Matrix = Callable[[float, Draws], Tensor]


def rotate(degrees: float, draws: Draws) -> Tensor:
    """Rotate by up to ``degrees`` in either direction."""
    return rotation(draws.between(-degrees, degrees))


def shear(degrees: float, draws: Draws) -> Tensor:
    """Shear along x by up to ``degrees`` in either direction."""
    angle = draws.between(-degrees, degrees)
    return shearing(angle, torch.zeros_like(angle))


def scale(amount: float, draws: Draws) -> Tensor:
    """Scale each axis independently by a factor between 1 - amount and 1 + amount."""
    x = draws.between(1 - amount, 1 + amount)
    return scaling(x, draws.between(1 - amount, 1 + amount))


def shift(images: Tensor, pixels: float, draws: Draws) -> Tensor:
    """Translate each image by up to ``pixels`` whole pixels along both axes, filling with black."""
    limit = int(pixels)
    offset = draws.whole(-limit, limit, columns=2)
    return place(images, offset.to(images.device), (images.shape[2], images.shape[3]))


def crop(images: Tensor, pixels: float, draws: Draws) -> Tensor:
    """Crop a square of ``pixels`` x ``pixels`` from each image at a random position."""
    size = int(pixels)
    height, width = images.shape[2:]
    check_fits((size, size), height, width)
    rows, columns = draws.whole(0, height - size, columns=1), draws.whole(0, width - size, columns=1)
    return place(images, -torch.cat([rows, columns], dim=1).to(images.device), (size, size))


def check_fits(size: tuple[int, int], height: int, width: int) -> None:
    """Raise an error if a crop of these rows and columns does not fit into the image."""
    if not (0 < size[0] <= height and 0 < size[1] <= width):
        raise TorchcapsError(f"cannot crop {size[0]}x{size[1]} pixels out of {height}x{width}: choose a smaller crop")


def flip(images: Tensor, chance: float, draws: Draws) -> Tensor:
    """Flip each image horizontally with probability ``chance``."""
    mirrored = draws.between(0, 1) < chance
    return torch.where(per_image(mirrored, images), images.flip(3), images)


def brightness(images: Tensor, amount: float, draws: Draws) -> Tensor:
    """Add a value between -amount and amount, then clamp to [0, 1]."""
    return (images + per_image(draws.between(-amount, amount), images)).clamp_(0, 1)


def contrast(images: Tensor, amount: float, draws: Draws) -> Tensor:
    """Scale the difference from each channel's mean by 1 - amount to 1 + amount, then clamp to [0, 1]."""
    factor = per_image(draws.between(1 - amount, 1 + amount), images)
    mean = images.mean(dim=(2, 3), keepdim=True)
    return mean.lerp(images, factor.expand_as(images)).clamp_(0, 1)


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """Move values (B,) to the images' device and reshape them to broadcast over (B, C, H, W)."""
    return values.to(images.device)[:, None, None, None]


MATRICES: dict[str, Matrix] = {"rotate": rotate, "shear": shear, "scale": scale}
CHANGES: dict[str, Change] = {
    "shift": shift,
    "crop": crop,
    "flip": flip,
    "brightness": brightness,
    "contrast": contrast,
}
CONTRAST, BRIGHTNESS = "normalized-contrast", "normalized-brightness"  # applied by the model, see Augmentation.jitter
JITTER = (CONTRAST, BRIGHTNESS)
# Upper limits: beyond them the image is empty or the matrix is singular.
LARGEST = {"rotate": 180.0, "shear": 80.0, "scale": 0.95, "flip": 1.0, "brightness": 1.0, "contrast": 1.0}
LARGEST |= {CONTRAST: 1.0, BRIGHTNESS: 10.0}
WHOLE = ("shift", "crop")


class Augmentation:
    """Random augmentation: rotate, shear and scale in one resampling, then the other transforms in the given order.

    >>> Augmentation("crop=24,rotate=20")(torch.ones(3, 1, 28, 28), Generator().manual_seed(0)).shape
    torch.Size([3, 1, 24, 24])
    """

    def __init__(self, text: str) -> None:
        self.matrices: list[tuple[str, float]] = []
        self.changes: list[tuple[str, float]] = []
        self.jitters: dict[str, float] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, amount = parse(part)
            if name in JITTER:
                self.jitters[name] = amount
            else:
                (self.matrices if name in MATRICES else self.changes).append((name, amount))

    def __call__(self, images: Tensor, generator: Generator, *, part: slice = slice(None), of: int = 0) -> Tensor:
        """Augment images (B, C, H, W) in [0, 1]; the size changes only if there is a crop.

        If the images are the slice ``part`` of a global batch of ``of`` images, the result is the same as that slice
        of the augmented global batch.
        """
        seed = int(torch.randint(1 << 62, (), generator=generator))

        def draws(name: str) -> Draws:
            return Draws(own_generator(seed, name), of or len(images), part)

        if self.matrices:
            product = torch.eye(2).expand(len(images), 2, 2)
            for name, amount in self.matrices:
                product = MATRICES[name](amount, draws(name)) @ product
            images = warp(images, product.to(images.device))
        for name, amount in self.changes:
            images = CHANGES[name](images, amount, draws(name))
        return images

    def jitter(self, generator: Generator, images: int, *, part: slice = slice(None)) -> Tensor | None:
        """Draw the contrast and brightness that a model applies after its preprocessing; None if there are none.

        Shape (B, 2): a factor and an offset for each image in the slice ``part`` of a global batch of ``images``
        images. Give them to the model: ``model(images, jitter=jitter)``.
        """
        if not self.jitters:
            return None
        seed = int(torch.randint(1 << 62, (), generator=generator))
        contrast, brightness = self.jitters.get(CONTRAST, 0.0), self.jitters.get(BRIGHTNESS, 0.0)
        factor = Draws(own_generator(seed, CONTRAST), images, part).between(1 - contrast, 1 + contrast)
        offset = Draws(own_generator(seed, BRIGHTNESS), images, part).between(-brightness, brightness)
        return torch.stack([factor, offset], 1)


PRESETS = {
    "none": "",
    "light": "shift={shift},flip=0.5",
    "strong": "rotate=15,scale=0.2,shift={shift},flip=0.5,brightness=0.2,contrast=0.3",
}


def expand_preset(text: str, side: int) -> str:
    """Return the augmentation behind a name for images of this size; any other text is returned unchanged.

    >>> expand_preset("light", 128), expand_preset("none", 28), expand_preset("rotate=5", 28)
    ('shift=6,flip=0.5', '', 'rotate=5')
    """
    return PRESETS[text].format(shift=max(2, round(side / 20))) if text in PRESETS else text


def parse(part: str) -> tuple[str, float]:
    """Parse and check one ``name=amount``."""
    name, _, text = part.partition("=")
    if name not in (*MATRICES, *CHANGES, *JITTER):
        raise unknown_name("augmentation", name, [*MATRICES, *CHANGES, *JITTER, *PRESETS])
    try:
        amount = float(text)
    except ValueError:
        raise TorchcapsError(f"augmentation '{part}' should be written {name}=NUMBER") from None
    if not 0 <= amount <= LARGEST.get(name, 10_000):
        raise TorchcapsError(f"augmentation '{part}' is out of range: 0 to {LARGEST.get(name, 10_000):g}")
    if name in WHOLE and amount != int(amount):
        raise TorchcapsError(f"augmentation '{part}' is in pixels: an integer is needed")
    return name, amount


def own_generator(seed: int, name: str) -> Generator:
    """Create the generator of one transform, independent of those of the others.

    torch's CPU generator uses only the lower 32 bits of its seed, hence the hash.
    """
    return Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))


DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def center_crop(images: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Crop the center of each image: (B, C, H, W) to (B, C, size, size), or to rows and columns."""
    return offset_crop(images, size, 0, 0)


def offset_crop(images: Tensor, size: int | tuple[int, int], down: int, right: int) -> Tensor:
    """Crop at an offset from the center, in pixels: (B, C, H, W) to (B, C, size, size), or to rows and columns."""
    height, width = images.shape[2:]
    rows, columns = (size, size) if isinstance(size, int) else size
    check_fits((rows + 2 * abs(down), columns + 2 * abs(right)), height, width)
    top, left = (height - rows) // 2 + down, (width - columns) // 2 + right
    return images[:, :, top : top + rows, left : left + columns]


def thirteen_crops(images: Tensor, size: int) -> Tensor:
    """Make the test crops of hinton2018: the center, and four diagonal offsets of 1, 2 and 3 pixels.

    The model's scores are averaged over the 13 crops. (B, C, H, W) to (13, B, C, size, size).
    """
    offsets = [(0, 0)] + [(down * step, right * step) for step in (1, 2, 3) for down, right in DIAGONALS]
    return torch.stack([offset_crop(images, size, down, right) for down, right in offsets])


def rotation(degrees: Tensor) -> Tensor:
    """Counterclockwise rotation matrices, as seen in the displayed image. (B,) to (B, 2, 2)."""
    angle = torch.deg2rad(degrees)
    cosine, sine = angle.cos(), angle.sin()
    # The y axis of an image points down, hence the sign.
    return torch.stack([cosine, sine, -sine, cosine], dim=-1).reshape(-1, 2, 2)


def shearing(x_degrees: Tensor, y_degrees: Tensor) -> Tensor:
    """Shear matrices for angles along x and along y. (B,), (B,) to (B, 2, 2)."""
    one = torch.ones_like(x_degrees)
    slant_x, slant_y = torch.deg2rad(x_degrees).tan(), torch.deg2rad(y_degrees).tan()
    return torch.stack([one, slant_x, slant_y, one], dim=-1).reshape(-1, 2, 2)


def scaling(x: Tensor, y: Tensor) -> Tensor:
    """Scaling matrices with a factor for each axis. (B,), (B,) to (B, 2, 2)."""
    return torch.diag_embed(torch.stack([x, y], dim=-1))


def warp(images: Tensor, matrix: Tensor, shift: Tensor | None = None, size: tuple[int, int] | None = None) -> Tensor:
    """Affine warp: move each point p, in pixels from the image center, to ``matrix @ p + shift``.

    Bilinear interpolation, zeros outside the image.

    Args:
        images: (B, C, H, W)
        matrix: (B, 2, 2), over (x to the right, y downward)
        shift: (B, 2) pixels, x then y; none by default
        size: rows and columns of the result, centered on the same point; H, W by default

    >>> picture = torch.zeros(1, 1, 5, 5); picture[0, 0, 2, 4] = 1  # right of the center
    >>> warp(picture, rotation(torch.tensor([90.0]))).round().nonzero().tolist()  # now above it
    [[0, 0, 0, 2]]
    """
    count, channels, height, width = images.shape
    rows, columns = size or (height, width)
    inverse = torch.linalg.inv(matrix)  # grid_sample maps output pixels to input pixels
    offset = torch.zeros(count, 2, 1, device=images.device) if shift is None else -(inverse @ shift.unsqueeze(-1))
    # affine_grid and grid_sample use coordinates from -1 to 1, not pixels.
    out_pixels = torch.tensor([columns / 2, rows / 2], device=images.device)
    per_pixel = torch.tensor([[2 / width], [2 / height]], device=images.device)
    theta = torch.cat([inverse * out_pixels * per_pixel, offset * per_pixel], dim=-1)  # (B, 2, 3)
    grid = F.affine_grid(theta, [count, channels, rows, columns], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def place(images: Tensor, offset: Tensor, size: tuple[int, int]) -> Tensor:
    """Paste each image onto a black canvas at its own whole-pixel offset.

    Args:
        images: (B, C, H, W) of any type
        offset: (B, 2), row and column of the image's top left corner on the canvas, may be negative; parts outside
            the canvas are cut off
        size: rows and columns of the canvas
    """
    count, _, height, width = images.shape
    rows, columns = size
    # Each canvas is a window of the zero-padded image, read through strides without a copy.
    top = int(offset[:, 0].max().clamp(min=0)), int((rows - height - offset[:, 0]).max().clamp(min=0))
    side = int(offset[:, 1].max().clamp(min=0)), int((columns - width - offset[:, 1]).max().clamp(min=0))
    padded = F.pad(images, (*side, *top))  # (B, C, rows + slack, columns + slack)
    windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, Y, X, rows, columns), a view
    picked = torch.arange(count, device=images.device)
    return windows.permute(0, 2, 3, 1, 4, 5)[picked, top[0] - offset[:, 0], side[0] - offset[:, 1]]
