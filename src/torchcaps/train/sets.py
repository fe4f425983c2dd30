"""The images of a run: those to train on, and those that select the checkpoint."""

from __future__ import annotations

import torch

from torchcaps.data import ImageSet, Subset, load_dataset, split_off
from torchcaps.train.config import RunConfig

MOST_VALIDATION = 10_000  # images; an endless set would be validated endlessly


def training_sets(config: RunConfig) -> tuple[ImageSet, ImageSet]:
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
