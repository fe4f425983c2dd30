"""The images of a run: those to train on, those that select the checkpoint, and what has changed since it began."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from torchcaps.data import ImageSet, Subset, datasets, load_dataset, split_off
from torchcaps.train.config import RunConfig

MOST_VALIDATION = 10_000  # images; an endless set would be validated endlessly


def training_splits(config: RunConfig) -> tuple[ImageSet, ImageSet]:
    """The images to train on and those that select the checkpoint: from the training split, or the split to stop on."""
    whole = load_dataset(config.data, "train")
    wanted = min(config.train_images or len(whole), len(whole))
    count = min(max(1, round(config.validation * wanted)), MOST_VALIDATION)
    # The split does not depend on the run's seed, so that runs with several seeds are chosen on the same images.
    training, validation = split_off(whole, count, seed=0)
    if config.stop_on != "validation":
        validation = load_dataset(config.data, config.stop_on)
    if wanted - count < len(training):
        training = Subset(training, torch.arange(wanted - count))
    return training, validation


@dataclass(frozen=True)
class Fingerprint:
    """What a dataset was when a run began: classes, images of each split, digests of images that may change."""

    classes: tuple[str, ...]
    images: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


def dataset_fingerprint(data: str) -> Fingerprint:
    """The fingerprint of a dataset as it is now. Known datasets have no digests: their files are verified."""
    record = datasets.get(data)
    return Fingerprint(tuple(record.class_names), dict(record.splits), dict(record.digests))


def dataset_changes(before: Fingerprint, now: Fingerprint) -> str:
    """What has changed in classes, number, labels or division of the images; an empty text if nothing has.

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
        return " and ".join(words) or "its classes have another order"
    difference = sum(now.images.values()) - sum(before.images.values()) if before.images else 0
    if difference:
        count = f"{abs(difference)} picture{'s were' if abs(difference) > 1 else ' was'}"
        return f"{count} {'added' if difference > 0 else 'removed'}"
    if same.get("pictures"):
        if not same.get("labels", True):
            return "labels were changed"
        if not same.get("order", True):
            return "files were renamed, which divides them anew into training and test images"
    elif not same.get("files", True):
        return "pictures were replaced by others"
    return ""
