"""What smallNORB and its generated stand-in have in common: five kinds of toys seen from every side.

Each category has ten toys (instances), five for training and five for test, each seen from 9 elevations and 18
azimuths under 6 lightings by two cameras. hinton2018, section 5: pixels are halved to 48x48; training takes 32x32
crops at random with random brightness and contrast, and tests take the centre. Its section 5.2 asks how well a
model does from sides it has never seen: the datasets ``...-azimuth`` and ``...-elevation``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages, chunks
from torchcaps.data.io.cache import Tensors
from torchcaps.data.registry import DatasetRecord, datasets

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
ELEVATIONS = tuple(range(30, 75, 5))  # degrees above the horizon
AZIMUTHS = tuple(range(0, 360, 20))  # degrees
LIGHTINGS = tuple(range(6))
SIZE, CROP = 48, 32
PAIRS = 5 * 5 * len(ELEVATIONS) * len(AZIMUTHS) * len(LIGHTINGS)  # per split
# brightness within 63/255, contrast 0.2 to 1.8
AUGMENTATION = f"crop={CROP},brightness={63 / 255:.4f},contrast=0.8"
FAMILIAR: dict[str, tuple[int, ...]] = {"azimuth": (300, 320, 340, 0, 20, 40), "elevation": (30, 35, 40)}


def halve(images: Tensor) -> Tensor:
    """Every 2x2 square of pixels to its mean. Bytes (N, C, 2H, 2W) to bytes (N, C, H, W)."""
    count, channels, height, width = images.shape
    squares = images.reshape(count, channels, height // 2, 2, width // 2, 2)
    result = torch.empty(count, channels, height // 2, width // 2, dtype=torch.uint8)
    for part in chunks(count, 1000):  # sums need 16 bits: not for a whole dataset at once
        result[part] = ((squares[part].to(torch.int16).sum(dim=(3, 5), dtype=torch.int16) + 2) // 4).to(torch.uint8)
    return result


def as_image_set(tensors: Tensors) -> TensorImages:
    """Images, labels, and everything else as factors."""
    factors = {name: values for name, values in tensors.items() if name not in ("images", "labels")}
    return TensorImages(tensors["images"], tensors["labels"], CATEGORIES, factors)


def with_viewpoints(whole: TensorImages, factor: str, chosen: Sequence[int]) -> TensorImages:
    """The images whose azimuth, elevation (degrees), lighting or instance is one of these."""
    return whole.where(torch.isin(whole.factors[factor], torch.tensor(chosen)))


def one_camera(whole: TensorImages) -> TensorImages:
    """The left camera's images only. (N, 2, H, W) to (N, 1, H, W)."""
    return TensorImages(whole.images[:, :1].contiguous(), whole.labels, whole.class_names, whole.factors)


def split_by_viewpoint(open_whole: Callable[[str], TensorImages], factor: str) -> Callable[[str], TensorImages]:
    """An opener with three splits.

    ``train``: training toys from familiar sides; ``familiar``: test toys from the same sides; ``test``: test toys
    from all other sides.
    """

    def open_split(split: str) -> TensorImages:
        whole = open_whole("train" if split == "train" else "test")
        novel = sorted(set(whole.factors[factor].tolist()) - set(FAMILIAR[factor]))
        return with_viewpoints(whole, factor, novel if split == "test" else FAMILIAR[factor])

    return open_split


def add_viewpoint_records(record: DatasetRecord, open_whole: Callable[[str], TensorImages]) -> None:
    """Register a set, its one-camera form and its two splits by viewpoint."""
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
