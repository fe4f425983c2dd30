"""Viewpoints, categories and splits shared by smallNORB and turntable.

Each of the five categories has ten toys (instances), five for training and five for test, at 9 elevations and 18
azimuths under 6 lightings, from two cameras. As in hinton2018, section 5, images are downsampled to 48x48; training
uses random 32x32 crops with random brightness and contrast after the normalization, and tests use the center crop. The
datasets ``...-azimuth`` and ``...-elevation`` test novel viewpoints (section 5.1). ``...-toys`` holds out one
training toy of each category as the split ``unseen``: further images of toys that were trained on say little about the
test toys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages, chunks
from torchcaps.data.counter_rng import uniform
from torchcaps.data.io.cache import Tensors
from torchcaps.data.registry import DatasetRecord, datasets

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
ELEVATIONS = tuple(range(30, 75, 5))  # degrees above the horizon
AZIMUTHS = tuple(range(0, 360, 20))  # degrees
LIGHTINGS = tuple(range(6))
SIZE, CROP = 48, 32
PAIRS = 5 * 5 * len(ELEVATIONS) * len(AZIMUTHS) * len(LIGHTINGS)  # per split
# The paper gives no amounts. The numbers of the authors' release: 63/255, there in pixels, and contrast 0.2 to 1.8.
AUGMENTATION = f"crop={CROP},normalized-brightness={63 / 255:.4f},normalized-contrast=0.8"
UNSEEN_TOY = 9  # of each category, the training toy that validates in the datasets ``...-toys``
FAMILIAR: dict[str, tuple[int, ...]] = {"azimuth": (300, 320, 340, 0, 20, 40), "elevation": (30, 35, 40)}


def halve(images: Tensor) -> Tensor:
    """Average each 2x2 square of pixels. uint8 (N, C, 2H, 2W) to uint8 (N, C, H, W)."""
    count, channels, height, width = images.shape
    squares = images.reshape(count, channels, height // 2, 2, width // 2, 2)
    result = torch.empty(count, channels, height // 2, width // 2, dtype=torch.uint8)
    for part in chunks(count, 1000):  # limit the memory of the 16-bit sums
        result[part] = ((squares[part].to(torch.int16).sum(dim=(3, 5), dtype=torch.int16) + 2) // 4).to(torch.uint8)
    return result


def as_image_set(tensors: Tensors) -> TensorImages:
    """Create an image set from "images" and "labels"; all other tensors become factors."""
    factors = {name: values for name, values in tensors.items() if name not in ("images", "labels")}
    return TensorImages(tensors["images"], tensors["labels"], CATEGORIES, factors)


def shuffled(whole: TensorImages, seed: int = 0) -> TensorImages:
    """Put images into a fixed random order, so that the first ones are a representative sample."""
    return whole.where(torch.argsort(uniform(seed, 0, torch.arange(len(whole)))))


def with_viewpoints(whole: TensorImages, factor: str, chosen: Sequence[int]) -> TensorImages:
    """Select the images whose ``factor`` (azimuth, elevation, lighting or instance) is one of ``chosen``."""
    return whole.where(torch.isin(whole.factors[factor], torch.tensor(chosen)))


def one_camera(whole: TensorImages) -> TensorImages:
    """Select the left camera's images. (N, 2, H, W) to (N, 1, H, W)."""
    return TensorImages(whole.images[:, :1].contiguous(), whole.labels, whole.class_names, whole.factors)


def split_by_viewpoint(open_whole: Callable[[str], TensorImages], factor: str) -> Callable[[str], TensorImages]:
    """Return a function that opens one of three splits.

    ``train``: training toys at familiar viewpoints; ``familiar``: test toys at the same viewpoints; ``test``: test toys
    at all other viewpoints.
    """

    def open_split(split: str) -> TensorImages:
        whole = open_whole("train" if split == "train" else "test")
        novel = sorted(set(whole.factors[factor].tolist()) - set(FAMILIAR[factor]))
        return with_viewpoints(whole, factor, novel if split == "test" else FAMILIAR[factor])

    return open_split


def split_by_toy(open_whole: Callable[[str], TensorImages]) -> Callable[[str], TensorImages]:
    """Return a function that opens ``train``, ``unseen`` (one training toy of each category) or ``test``."""

    def open_split(split: str) -> TensorImages:
        if split == "test":
            return open_whole("test")
        others = [toy for toy in INSTANCES["train"] if toy != UNSEEN_TOY]
        return with_viewpoints(open_whole("train"), "instance", [UNSEEN_TOY] if split == "unseen" else others)

    return open_split


def add_viewpoint_records(record: DatasetRecord, open_whole: Callable[[str], TensorImages]) -> None:
    """Register a dataset, its one-camera version, its two splits by viewpoint and its split by toy."""
    datasets.add(record)
    name, _, height, width = record.name, *record.shape
    datasets.add(
        replace(
            record,
            name=f"{name}-mono",
            description=f"{name} through one camera",
            shape=(1, height, width),
            open=lambda split: one_camera(open_whole(split)),
        )
    )
    for factor, count in (("azimuth", len(AZIMUTHS)), ("elevation", len(ELEVATIONS))):
        familiar = PAIRS * len(FAMILIAR[factor]) // count
        datasets.add(
            replace(
                record,
                name=f"{name}-{factor}",
                description=f"{name}, tested on {factor}s not seen in training",
                splits={"train": familiar, "familiar": familiar, "test": PAIRS - familiar},
                open=split_by_viewpoint(open_whole, factor),
            )
        )
    unseen = PAIRS // len(INSTANCES["train"])
    datasets.add(
        replace(
            record,
            name=f"{name}-toys",
            description=f"{name}, for validation on toys not seen in training",
            splits={"train": PAIRS - unseen, "unseen": unseen, "test": PAIRS},
            open=split_by_toy(open_whole),
        )
    )
