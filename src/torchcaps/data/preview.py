"""Contact sheets: example images of every class in one picture."""

from __future__ import annotations

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from torchcaps.data.base import Batch, ImageSet

COLUMNS = 12
LOOK_AT = 4000  # number of images searched for examples of every class
INK, PAPER, GAP = (20, 20, 20), (255, 255, 255), 4


def contact_sheet(images: ImageSet, title: str, *, columns: int = COLUMNS) -> Image.Image:
    """Draw one labeled row per class; for overlaid digits, draw rows of images and of their targets instead."""
    batch = images.batch(evenly_spaced(len(images), min(LOOK_AT, len(images))))
    if batch.targets is not None:
        rows = overlaid_rows(batch, columns)
    else:
        rows = [
            (name, batch.images[(batch.labels == label).nonzero().flatten()[:columns]])
            for label, name in enumerate(images.class_names)
        ]
    return draw_rows(title, rows, images.shape)


def evenly_spaced(count: int, wanted: int) -> Tensor:
    """Return evenly spaced indices of a set, in a fixed shuffled order."""
    step = count / wanted
    positions = (torch.arange(wanted, dtype=torch.float64) * step).long()
    return positions[torch.randperm(wanted, generator=torch.Generator().manual_seed(0))]


def overlaid_rows(batch: Batch, columns: int) -> list[tuple[str, Tensor]]:
    """Return one row of images followed by one row per digit with that digit alone, for every ``columns`` images."""
    assert batch.targets is not None
    rows = []
    for start in range(0, 4 * columns, columns):
        part = slice(start, start + columns)
        rows.append(("image", batch.images[part]))
        rows += [(f"digit {digit + 1}", batch.targets[part, digit]) for digit in range(batch.targets.shape[1])]
    return rows


def draw_rows(title: str, rows: list[tuple[str, Tensor]], shape: tuple[int, int, int]) -> Image.Image:
    """Draw rows of images (K, C, H, W) under a title; two channels (stereo cameras) are drawn side by side."""
    channels, height, width = shape
    zoom = max(1, round(64 / height))
    font = ImageFont.load_default(size=14)
    cell_width = width * zoom * (2 if channels == 2 else 1) + GAP
    cell_height = height * zoom + GAP
    margin = 16 + max(int(font.getlength(name)) for name, _ in rows)
    most = max(len(images) for _, images in rows)
    sheet = Image.new("RGB", (margin + most * cell_width + GAP, 32 + len(rows) * cell_height + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((8, 8), title, fill=INK, font=font)
    for row, (name, images) in enumerate(rows):
        top = 32 + row * cell_height
        pen.text((8, top + cell_height // 2 - 8), name, fill=INK, font=font)
        for column, image in enumerate(images):
            sheet.paste(as_picture(image, zoom), (margin + column * cell_width, top))
    return sheet


def as_picture(image: Tensor, zoom: int) -> Image.Image:
    """Convert an image (C, H, W) in [0, 1] to a PIL image, enlarged by nearest-neighbor interpolation."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    if len(pixels) == 3:
        picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    else:
        picture = Image.fromarray(torch.cat(list(pixels), dim=1).numpy())
    return picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)
