"""Defaults for a comparison on the user's own images, and a summary of those images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image

from torchcaps.data import Augmentation, TensorImages, datasets
from torchcaps.data.base import as_floats
from torchcaps.data.datasets.image_folder import (
    FAMILY,
    TEST_SHARE,
    completed,
    display_name,
    fit_folder,
    open_named,
    parse_name,
)
from torchcaps.data.preview import contact_sheet

# Two capsule networks that learn from few images, the first also with uniform couplings, and a convolutional network.
MODELS = ("capsnet", "capsnet:routing=uniform", "ar-capsnet", "convnet-avg")
IMAGES_SEEN = 8000  # by each model over all default epochs: a minute or two on one core
EPOCHS = range(5, 41)
SHEET_COLUMNS, SHEET_CLASSES = 8, 40


@dataclass(frozen=True)
class ImageFolderSummary:
    """A folder of images: rows of a table (class, training, test), a paragraph, warnings, and skipped files."""

    rows: list[tuple[str, str, str]]
    text: str
    warnings: list[str]
    skipped: tuple[str, ...]


def is_own_images(data: str) -> bool:
    """Return whether a dataset name refers to the user's own images."""
    return data.partition(":")[0] == FAMILY


def default_epochs(data: str) -> int:
    """Return a number of epochs that grows as the training set shrinks, within limits."""
    fitting = IMAGES_SEEN // datasets.get(data).splits["train"]
    return min(max(fitting, EPOCHS.start), EPOCHS.stop - 1)


def preview_sheet(data: str, augmentation: str = "") -> Image.Image:
    """Make a contact sheet of training images of each class, at the size and in the colors that a model receives.

    With ``augmentation``, as they are in training.
    """
    images = open_named(data.partition(":")[2]).train
    names = images.class_names[:SHEET_CLASSES]
    indices = [(images.labels == label).nonzero().flatten()[:SHEET_COLUMNS] for label in range(len(names))]
    chosen = torch.cat(indices)
    some = f", the first {len(names)} of {len(images.class_names)} classes" * (len(names) < len(images.class_names))
    given = f"in training, augmented by {augmentation}" if augmentation else "as a network receives them"
    title = f"{display_name(data)}: images {given}, {'x'.join(map(str, images.shape))}{some}"
    pixels = images.images[chosen]
    if augmentation:
        changed = Augmentation(augmentation)(as_floats(pixels), torch.Generator().manual_seed(0))
        pixels = changed.mul(255).round().to(torch.uint8)
    shown = TensorImages(pixels, images.labels[chosen], names)
    return contact_sheet(shown, title, columns=SHEET_COLUMNS)


def summarize_images(data: str, asked_by: str = "as requested") -> ImageFolderSummary:
    """Summarize the images: classes, split and size; ``asked_by`` says why the size is not the one that fits them."""
    text = data.partition(":")[2]
    folder, balance = open_named(text), open_named(text).balance
    root, chosen = completed(text)
    fit = fit_folder(root)
    as_fitted = {"size": fit.size, "grey": int(fit.grey)}
    asked = {name: value for name, value in parse_name(text)[1].items() if as_fitted.get(name, value) != value}
    reason = asked_by if asked else fit.reason
    height, width = folder.train.shape[1:]
    summary = (
        f"{len(folder.train) + len(folder.test)} images of {len(balance.names)} classes, resized to "
        f"{height}x{width} pixels in {'gray' if chosen['grey'] else 'color'} ({reason}). "
        f"{len(folder.test)} of them ({TEST_SHARE:.0%} of each class, chosen by seed {chosen.get('seed', 0)}) are the "
        "test set, always the same ones."
    )
    rows = [
        (name, str(train), str(test))
        for name, train, test in zip(balance.names, balance.train, balance.test, strict=True)
    ]
    return ImageFolderSummary(rows, summary, balance.warnings(), folder.skipped)
