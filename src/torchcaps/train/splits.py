"""The training and validation images of a run, and a fingerprint that detects changes of its dataset."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from torchcaps.data import ImageSet, Subset, datasets, load_dataset, split_off
from torchcaps.train.config import RunConfig

MOST_VALIDATION = 10_000  # images; a generated set may be huge


def training_splits(config: RunConfig) -> tuple[ImageSet, ImageSet]:
    """Load the images to train on, and those that select the checkpoint: held out, or the split ``stop_on``."""
    images = load_dataset(config.data, "train")
    wanted = min(config.train_images or len(images), len(images))
    count = min(max(1, round(config.validation * wanted)), MOST_VALIDATION)
    # Independent of the seed of the run: runs with different seeds are validated on the same images.
    training, validation = split_off(images, count, seed=0)
    if config.stop_on != "validation":
        validation = load_dataset(config.data, config.stop_on)
    if wanted - count < len(training):
        training = Subset(training, torch.arange(wanted - count))
    return training, validation


@dataclass(frozen=True)
class Fingerprint:
    """A dataset at the start of a run: classes, images of each split, and digests of files that may change."""

    classes: tuple[str, ...]
    images: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


def dataset_fingerprint(data: str) -> Fingerprint:
    """Compute the fingerprint of a dataset. Downloaded datasets have no digests: their files are verified."""
    record = datasets.get(data)
    return Fingerprint(tuple(record.class_names), dict(record.splits), dict(record.digests))


def dataset_changes(before: Fingerprint, now: Fingerprint) -> str:
    """Describe what has changed in the classes, number, labels or splits of the images; empty if nothing has.

    >>> dataset_changes(Fingerprint(("cat", "dog")), Fingerprint(("cat", "dog", "fox")))
    "class 'fox' was added"
    """
    same = {name: now.digests.get(name) == digest for name, digest in before.digests.items()}
    if before.classes != now.classes:
        removed = [name for name in before.classes if name not in now.classes]
        added = [name for name in now.classes if name not in before.classes]
        if len(removed) == len(added) == 1 and same.get("pictures"):
            return f"class '{removed[0]}' was renamed to '{added[0]}'"
        words = [f"class '{name}' was removed" for name in removed] + [f"class '{name}' was added" for name in added]
        return " and ".join(words) or "the order of its classes has changed"
    difference = sum(now.images.values()) - sum(before.images.values()) if before.images else 0
    if difference:
        count = f"{abs(difference)} picture{'s were' if abs(difference) > 1 else ' was'}"
        return f"{count} {'added' if difference > 0 else 'removed'}"
    if same.get("pictures"):
        if not same.get("labels", True):
            return "labels were changed"
        if not same.get("order", True):
            return "files were renamed, which changes the split into training and test images"
    elif not same.get("files", True):
        return "pictures were replaced by others"
    return ""
