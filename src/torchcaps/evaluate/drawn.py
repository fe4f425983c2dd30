"""Digits that a GAN draws, as a test: chen2019, Table 3."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from torchcaps.data import MemoryImages
from torchcaps.data.base import as_floats
from torchcaps.evaluate.acgan import EPOCHS, PER_DIGIT, GanSettings, generate, train_acgan
from torchcaps.evaluate.acgan_nets import CLASSES
from torchcaps.evaluate.canvas import first_images
from torchcaps.models import Model
from torchcaps.train import measure


def measure_acgan(
    model: Model, settings: GanSettings, *, images_used: int | None = None, epochs: int = EPOCHS
) -> dict[str, Any]:
    """Share of wrong answers on the drawings of each epoch; ``images_used``: None for 400 of each digit.

    ``variety`` is how much a pixel differs between drawings of one digit (0.15 in MNIST): a GAN that draws every digit
    in one way only makes a test of ten images.
    """
    train_acgan(settings.folder(), settings, epochs)
    count = min(images_used or CLASSES * PER_DIGIT, CLASSES * PER_DIGIT)
    errors, variety = {}, {}
    for epoch in range(1, epochs + 1):
        drawn = generate(settings.folder(), epoch, count)
        variety[str(epoch)] = _variety(drawn)
        shown = first_images(model, drawn, None)
        errors[str(epoch)] = 1 - measure(model, shown, description=f"epoch {epoch}").accuracy
    seen = "all" if settings.train_images is None else f"{settings.train_images:,}"
    about = f"digits drawn by an AC-GAN after each of {epochs} epochs on {seen} images of {settings.data}"
    found: dict[str, Any] = {"name": "acgan", "about": about, "images": count, "settings": asdict(settings)}
    return found | {"error_by_epoch": errors, "variety_by_epoch": variety}


def _variety(drawn: MemoryImages) -> float:
    """Standard deviation of a pixel among drawings of one digit, mean over pixels and digits."""
    pixels = as_floats(drawn.images)
    of_digit = [pixels[drawn.labels == digit].std(0, correction=0).mean() for digit in drawn.labels.unique()]
    return torch.stack(of_digit).mean().item()
