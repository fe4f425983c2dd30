"""Random changes of training images, a whole batch at a time.

An augmentation is written as text, ``"shift=2"`` or ``"rotate=20,shift=2,flip=0.5"``, so that a run's settings hold
it. The caller seeds one generator; each change draws from its own, derived from that one and from the change's name.
So the same generator state gives the same images, and adding a flip leaves the shifts as they were. Numbers are drawn
for a whole batch, also where several processes share it: what happens to an image does not depend on their number.
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
    """Random numbers for ``part`` of a batch of so many images: those that they get when the batch is whole."""

    generator: Generator
    images: int
    part: slice

    def between(self, low: float, high: float) -> Tensor:
        """Uniform numbers. Shape (B,), B images in the part."""
        return torch.empty(self.images).uniform_(low, high, generator=self.generator)[self.part]

    def whole(self, low: int, high: int, *, columns: int) -> Tensor:
        """Whole numbers, ``high`` included. Shape (B, columns)."""
        return torch.randint(low, high + 1, (self.images, columns), generator=self.generator)[self.part]


Change = Callable[[Tensor, float, Draws], Tensor]
Matrix = Callable[[float, Draws], Tensor]


def rotate(degrees: float, draws: Draws) -> Tensor:
    """Turn by up to ``degrees`` either way."""
    return rotation(draws.between(-degrees, degrees))


def shear(degrees: float, draws: Draws) -> Tensor:
    """Slant along x by up to ``degrees`` either way."""
    angle = draws.between(-degrees, degrees)
    return shearing(angle, torch.zeros_like(angle))


def scale(amount: float, draws: Draws) -> Tensor:
    """Scale each axis by a factor of its own, 1 - amount to 1 + amount."""
    x = draws.between(1 - amount, 1 + amount)
    return scaling(x, draws.between(1 - amount, 1 + amount))


def shift(images: Tensor, pixels: float, draws: Draws) -> Tensor:
    """Move each image by up to ``pixels`` whole pixels along both axes; what comes in is black."""
    reach = int(pixels)
    offset = draws.whole(-reach, reach, columns=2)
    return place(images, offset.to(images.device), (images.shape[2], images.shape[3]))


def crop(images: Tensor, pixels: float, draws: Draws) -> Tensor:
    """Cut a square of ``pixels`` out of each image, anywhere."""
    size = int(pixels)
    height, width = images.shape[2:]
    check_fits(size, height, width)
    rows, columns = draws.whole(0, height - size, columns=1), draws.whole(0, width - size, columns=1)
    return place(images, -torch.cat([rows, columns], dim=1).to(images.device), (size, size))


def check_fits(size: int, height: int, width: int) -> None:
    """A crop must be inside its image."""
    if not 0 < size <= min(height, width):
        raise TorchcapsError(f"cannot crop {size}x{size} pixels out of {height}x{width}: choose a smaller crop")


def flip(images: Tensor, chance: float, draws: Draws) -> Tensor:
    """Mirror left to right, each image with this chance."""
    mirrored = draws.between(0, 1) < chance
    return torch.where(per_image(mirrored, images), images.flip(3), images)


def brightness(images: Tensor, amount: float, draws: Draws) -> Tensor:
    """Add up to ``amount``, or take it away; the result stays in [0, 1]."""
    return (images + per_image(draws.between(-amount, amount), images)).clamp_(0, 1)


def contrast(images: Tensor, amount: float, draws: Draws) -> Tensor:
    """Scale the distance to the image's mean by 1 - amount to 1 + amount; the result stays in [0, 1]."""
    factor = per_image(draws.between(1 - amount, 1 + amount), images)
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

    def __call__(self, images: Tensor, generator: Generator, *, part: slice = slice(None), of: int = 0) -> Tensor:
        """(B, C, H, W) in [0, 1] to the same, or to the size of the crop.

        Where the images are only ``part`` of a batch of ``of`` images, each is changed as it would be in the whole.
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


DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def center_crop(images: Tensor, size: int) -> Tensor:
    """The middle of each image. (B, C, H, W) to (B, C, size, size)."""
    return offset_crop(images, size, 0, 0)


def offset_crop(images: Tensor, size: int, down: int, right: int) -> Tensor:
    """A square that lies beside the middle by so many pixels. (B, C, H, W) to (B, C, size, size)."""
    height, width = images.shape[2:]
    check_fits(size + 2 * max(abs(down), abs(right)), height, width)
    top, left = (height - size) // 2 + down, (width - size) // 2 + right
    return images[:, :, top : top + size, left : left + size]


def thirteen_crops(images: Tensor, size: int) -> Tensor:
    """The multi-crop test of hinton2018: the centre, and four diagonal offsets of 1, 2 and 3 pixels.

    A model's scores are averaged over the 13. (B, C, H, W) to (13, B, C, size, size).
    """
    offsets = [(0, 0)] + [(down * step, right * step) for step in (1, 2, 3) for down, right in DIAGONALS]
    return torch.stack([offset_crop(images, size, down, right) for down, right in offsets])


def rotation(degrees: Tensor) -> Tensor:
    """Turn counter-clockwise, as one sees it on the page. (B,) to matrices (B, 2, 2)."""
    angle = torch.deg2rad(degrees)
    cosine, sine = angle.cos(), angle.sin()
    # Rows of an image are counted downward, hence the sign.
    return torch.stack([cosine, sine, -sine, cosine], dim=-1).reshape(-1, 2, 2)


def shearing(x_degrees: Tensor, y_degrees: Tensor) -> Tensor:
    """Slant along x and along y by angles. (B,), (B,) to matrices (B, 2, 2)."""
    one = torch.ones_like(x_degrees)
    slant_x, slant_y = torch.deg2rad(x_degrees).tan(), torch.deg2rad(y_degrees).tan()
    return torch.stack([one, slant_x, slant_y, one], dim=-1).reshape(-1, 2, 2)


def scaling(x: Tensor, y: Tensor) -> Tensor:
    """Enlarge (above 1) or shrink each axis. (B,), (B,) to matrices (B, 2, 2)."""
    return torch.diag_embed(torch.stack([x, y], dim=-1))


def warp(images: Tensor, matrix: Tensor, shift: Tensor | None = None, size: tuple[int, int] | None = None) -> Tensor:
    """Move the point at p, in pixels from the image's centre, to ``matrix @ p + shift``; bilinear, black outside.

    Args:
        images: (B, C, H, W)
        matrix: (B, 2, 2), over (x to the right, y downward)
        shift: (B, 2) pixels, x then y; none by default
        size: rows and columns of the result, centred on the same point; H, W by default

    >>> picture = torch.zeros(1, 1, 5, 5); picture[0, 0, 2, 4] = 1  # right of the centre
    >>> warp(picture, rotation(torch.tensor([90.0]))).round().nonzero().tolist()  # now above it
    [[0, 0, 0, 2]]
    """
    count, channels, height, width = images.shape
    rows, columns = size or (height, width)
    back = torch.linalg.inv(matrix)  # grid_sample asks where each pixel of the result comes from
    offset = torch.zeros(count, 2, 1, device=images.device) if shift is None else -(back @ shift.unsqueeze(-1))
    # affine_grid and grid_sample both count from -1 to 1 across their own image, not in pixels.
    out_pixels = torch.tensor([columns / 2, rows / 2], device=images.device)
    per_pixel = torch.tensor([[2 / width], [2 / height]], device=images.device)
    theta = torch.cat([back * out_pixels * per_pixel, offset * per_pixel], dim=-1)  # (B, 2, 3)
    grid = F.affine_grid(theta, [count, channels, rows, columns], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def place(images: Tensor, offset: Tensor, size: tuple[int, int]) -> Tensor:
    """Put each image on a black canvas at its own whole-pixel offset.

    Args:
        images: (B, C, H, W) of any type
        offset: (B, 2), row and column of the canvas where the image's top left corner goes; parts that fall
            outside are cut off, and offsets may be negative
        size: rows and columns of the canvas
    """
    count, _, height, width = images.shape
    rows, columns = size
    # The canvas is a window on the image with a wide black margin: one slice per offset, read through strides.
    top = int(offset[:, 0].max().clamp(min=0)), int((rows - height - offset[:, 0]).max().clamp(min=0))
    side = int(offset[:, 1].max().clamp(min=0)), int((columns - width - offset[:, 1]).max().clamp(min=0))
    padded = F.pad(images, (*side, *top))  # (B, C, rows + slack, columns + slack)
    windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, Y, X, rows, columns), a view
    picked = torch.arange(count, device=images.device)
    return windows.permute(0, 2, 3, 1, 4, 5)[picked, top[0] - offset[:, 0], side[0] - offset[:, 1]]
