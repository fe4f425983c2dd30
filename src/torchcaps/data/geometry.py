"""Affine change of images in one resampling: turned, sheared, scaled and moved about their centre."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


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
