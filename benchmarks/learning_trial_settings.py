"""The trials of how matrix capsules learn: the settings of each training, and what it changes in the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from benchmarks.learning_changes import (
    Change,
    adam,
    averaged,
    drop_primary_capsules,
    normalize_activations,
    normalize_by_batch,
    normalize_each_pose,
    normalize_features,
    rates,
    scale_class_lambda,
    scale_convolution,
    scale_primary_poses,
    shift_primary_activations,
    start_as_rotations,
    start_filters_as_cosines,
    start_poses_at_identity,
    widen_class_logits,
)
from benchmarks.plain_counterpart import NAME as PLAIN_COUNTERPART

ONE_CYCLE = "one-cycle:{}:0.1"
MUON = {"optimizer": "muon"}
BASE: dict[str, Any] = {
    "model": "matrix-capsnet",
    "data": "mnist",
    "augmentation": "",
    "steps": 400,
    "validation": 2000 / 60000,
    "schedule": ONE_CYCLE.format(0.01),
}


@dataclass(frozen=True)
class Trial:
    """Settings of a training, and a change of the new model that is no setting."""

    settings: dict[str, Any] = field(default_factory=dict)
    change: Change | None = None


def em(iterations: int = 2, start: str = "identity", clip: float | None = 1.0, **routing: Any) -> dict[str, Any]:
    """Options of the model, and the clipped norm of the gradient."""
    options = {"start": start, "routing_options": {"iterations": iterations} | routing}
    return {"options": options} | ({"clip_norm": clip} if clip else {})


def batches(size: int, images: int = 12_800) -> dict[str, Any]:
    """As many steps as the images need."""
    return {"batch_size": size, "steps": images // size}


def one_epoch() -> dict[str, Any]:
    """One epoch of 54,000 digits, evaluated on the other 6,000."""
    return batches(32, 54_000) | {"validation": 0.1}


def five_epochs() -> dict[str, Any]:
    """Five epochs of 54,000 digits, evaluated on the other 6,000."""
    return {"epochs": 5, "steps": None, "validation": 0.1}


def toys(size: int, epochs: float = 1) -> dict[str, Any]:
    """Training on smallNORB, for toys that are not trained on."""
    chosen = {"data": "smallnorb-jpeg-toys", "stop_on": "unseen", "validation": 0.01, "augmentation": None}
    return chosen | batches(size, round(epochs * 19_200)) | {"epochs": math.ceil(epochs)}


def peak(rate: float) -> dict[str, Any]:
    """Set the peak of the one-cycle schedule."""
    return {"schedule": ONE_CYCLE.format(rate)}


def small(iterations: int = 2, *, variance_floor: float = 1.0, **routing: Any) -> dict[str, Any]:
    """Batches of 8 with a floor of 1."""
    return em(iterations, variance_floor=variance_floor, **routing) | batches(8) | peak(0.005)


def rms(
    iterations: int = 2, *, variance_floor: float = 1.0, clip: float | None = 1.0, **options: Any
) -> dict[str, Any]:
    """Poses normalized between layers."""
    chosen = em(iterations, clip=clip, variance_floor=variance_floor)
    return chosen | {"options": chosen["options"] | {"normalization": "rms"} | options}


def toys_rms(weight_decay: float = 0.0, warp: str = "", size: int = 32, rate: float = 0.006) -> dict[str, Any]:
    """Five epochs on smallNORB with normalized poses; ``warp`` is added to the augmentation."""
    chosen = rms() | toys(size, 5) | peak(rate)
    if warp:
        chosen["augmentation"] = f"{warp},crop=32,normalized-brightness=0.2471,normalized-contrast=0.8"
    return chosen | ({"optimizer": "adamw", "weight_decay": weight_decay} if weight_decay else {})


def plain(*, batch_norm: bool, width: int = 32) -> dict[str, Any]:
    """The plain counterpart of matrix capsules."""
    return {"model": PLAIN_COUNTERPART, "options": {"width": width, "batch_norm": batch_norm}} | peak(0.005)


def pooling(weight_decay: float = 0.0, epochs: int = 6, rate: float = 0.003) -> dict[str, Any]:
    """Train hahn2019's network for novel sides, with average pooling."""
    chosen = {"model": "resnet20", "options": {"trunk": "convnet7", "head": "average"}} | toys(64, epochs) | peak(rate)
    return chosen | {"optimizer": "adamw", "weight_decay": weight_decay}


TRIALS: dict[str, Trial] = {
    "2 iterations, random start": Trial(em(start="random", clip=None)),
    "2 iterations, identity": Trial(em(clip=None)),
    "2 iterations, identity, clipping": Trial(em()),
    "3 iterations, random start": Trial(em(3, "random", None)),
    "3 iterations, random start, clipping": Trial(em(3, "random")),
    "3 iterations, identity": Trial(em(3, clip=None)),
    "3 iterations, identity, clipping": Trial(em(3)),
    "3 iterations, identity, schedule of release 0.2": Trial(
        em(3, clip=None) | {"learning_rate": 3e-3, "schedule": "exponential:0.5:1500"}
    ),
    "3 iterations, identity, clipping, peak 0.005": Trial(em(3) | peak(0.005)),
    "2 iterations, identity, clipping, peak 0.02": Trial(em() | peak(0.02)),
    "2 iterations, identity, clipping, margin at half pace": Trial(em() | {"margin_pace": 0.5}),
    "2 iterations, identity, clipping, AdamW with weight decay 0.05": Trial(
        em() | {"optimizer": "adamw", "weight_decay": 0.05}
    ),
    # From here on with two iterations, a start near the identity and clipping, unless the name says otherwise.
    "batch 16": Trial(em() | batches(16)),
    "batch 16, peak 0.005": Trial(em() | batches(16) | peak(0.005)),
    "batch 8, peak 0.005": Trial(em() | batches(8) | peak(0.005)),
    "floor 0.5": Trial(em(variance_floor=0.5)),
    "floor 1": Trial(em(variance_floor=1.0)),
    "floor 2": Trial(em(variance_floor=2.0)),
    "lambda 1": Trial(em(final_lambda=1.0)),
    "lambda 4": Trial(em(final_lambda=4.0)),
    "floor 1, lambda 1": Trial(em(final_lambda=1.0, variance_floor=1.0)),
    "floor 1, 3 iterations": Trial(em(3, variance_floor=1.0)),
    "clipping at 0.3": Trial(em(clip=0.3)),
    "Adam 0.9, 0.99": Trial(em() | adam(0.9, 0.99)),
    "Muon": Trial(em() | MUON),
    "floor 1, Muon": Trial(em(variance_floor=1.0) | MUON),
    "convolutions x0.3": Trial(em() | rates(0.3)),
    "convolutions x0.3, transforms x2": Trial(em() | rates(0.3, 2.0)),
    "vectors x0.3": Trial(em() | rates(1.0, 1.0, 0.3)),
    "transforms x3": Trial(em() | rates(1.0, 3.0)),
    "floor 1, convolutions x0.3, transforms x2": Trial(em(variance_floor=1.0) | rates(0.3, 2.0)),
    "primary poses x0.5": Trial(em(), scale_primary_poses(0.5)),
    "primary poses x2": Trial(em(), scale_primary_poses(2)),
    "primary poses x4": Trial(em(), scale_primary_poses(4)),
    "class lambda x2": Trial(em(), scale_class_lambda(2)),
    "class lambda x4": Trial(em(), scale_class_lambda(4)),
    # Batches of 8, floor 1, peak 0.005.
    "batch 8, floor 1": Trial(small()),
    "batch 8, floor 1, peak 0.01": Trial(small() | peak(0.01)),
    "batch 8, floor 1, margin to 0.6": Trial(small() | {"margin_pace": 0.57}),
    "batch 8, floor 1, convolutions x0.3, transforms x2": Trial(small() | rates(0.3, 2.0)),
    "batch 8, floor 1, vectors x0.1": Trial(small() | rates(1.0, 1.0, 0.1)),
    "batch 8, floor 1, class lambda x0.25, lowest logit -3": Trial(small(), widen_class_logits(0.25, -3)),
    "batch 8, floor 1, class lambda x0.5, lowest logit -3": Trial(small(), widen_class_logits(0.5, -3)),
    "batch 8, floor 1, no standardization": Trial(small() | {"options": small()["options"] | {"preprocess": "none"}}),
    "batch 8, floor 1, primary activations start at 0.12": Trial(small(), shift_primary_activations(-2)),
    "batch 8, floor 1, primary activations start at 0.88": Trial(small(), shift_primary_activations(2)),
    "batch 8, floor 1, first convolution x2.5": Trial(small(), scale_convolution(2.5)),
    "batch 8, floor 1, 3 iterations": Trial(small(3)),
    "batch 8, floor 1, 3 iterations, gradient through 2": Trial(small(3, gradient_steps=2)),
    "batch 8, floor 1, 3 iterations, gradient through 1": Trial(small(3, gradient_steps=1)),
    "batch 8, floor 1, 5 iterations": Trial(small(5)),
    "batch 8, floor 1, 5 iterations, gradient through 2": Trial(small(5, gradient_steps=2)),
    "one epoch, batch 8, floor 1": Trial(small() | batches(8, 58_000)),
    # Poses normalized between layers, two iterations, floor 1 and clipping, unless the name says otherwise.
    "rms": Trial(rms()),
    "rms, floor 0.2": Trial(rms(variance_floor=0.2)),
    "rms, floor 0.5": Trial(rms(variance_floor=0.5)),
    "rms, floor 2": Trial(rms(variance_floor=2.0)),
    "rms, 1 iteration": Trial(rms(1)),
    "rms, 3 iterations": Trial(rms(3)),
    "rms, no clipping": Trial(rms(clip=None)),
    "rms, peak 0.02": Trial(rms() | peak(0.02)),
    "rms, batch 16, peak 0.007": Trial(rms() | batches(16) | peak(0.007)),
    "rms, cross-entropy": Trial(rms() | {"loss": "cross-entropy"}),
    "rms, margin loss": Trial(rms() | {"loss": "margin"}),
    "rms, 64 filters": Trial(rms(filters=64)),
    "rms, 16 types": Trial(rms(types=(16, 16, 16))),
    "rms, primary poses start at the identity": Trial(rms(), start_poses_at_identity(1.0)),
    "rms, filters start as cosines": Trial(rms(), start_filters_as_cosines(0.6)),
    "rms, batch norm of features": Trial(rms(), normalize_features(0.4)),
    "batch norm of poses by type, floor 1": Trial(em(variance_floor=1.0), normalize_by_batch),
    "one epoch, rms": Trial(rms() | batches(32, 58_000)),
    "one epoch, rms, batch 16, peak 0.007": Trial(rms() | batches(16, 58_000) | peak(0.007)),
    "one epoch, rms, 6,000 validation digits": Trial(rms() | one_epoch()),
    "one epoch, rms, Muon, 6,000 validation digits": Trial(rms() | MUON | one_epoch()),
    "one epoch, rms, Muon, a rotation per parent, 6,000 validation digits": Trial(
        rms() | MUON | one_epoch(), start_as_rotations(0.1)
    ),
    "one epoch, each pose normalized, 6,000 validation digits": Trial(
        rms() | one_epoch(), normalize_each_pose(primary=False)
    ),
    "one epoch, each pose normalized, primary poses too, 6,000 validation digits": Trial(
        rms() | one_epoch(), normalize_each_pose(primary=True)
    ),
    "one epoch, plain counterpart, 6,000 validation digits": Trial(plain(batch_norm=False) | one_epoch()),
    "one epoch, plain counterpart with batch norm, 6,000 validation digits": Trial(
        plain(batch_norm=True) | one_epoch()
    ),
    "one epoch, plain counterpart with batch norm and 136 channels, 6,000 validation digits": Trial(
        plain(batch_norm=True, width=136) | one_epoch()
    ),
    "5 epochs, plain counterpart with batch norm, 6,000 validation digits": Trial(
        plain(batch_norm=True) | five_epochs()
    ),
    "one epoch, each pose and all activations normalized, 6,000 validation digits": Trial(
        rms() | one_epoch(), normalize_activations
    ),
    "one epoch, each pose and all activations normalized, Muon, 6,000 validation digits": Trial(
        rms() | MUON | one_epoch(), normalize_activations
    ),
    "5 epochs, each pose and all activations normalized, Muon, 6,000 validation digits": Trial(
        rms() | MUON | five_epochs(), normalize_activations
    ),
    "toys, 5 epochs, each pose and all activations normalized": Trial(toys_rms(), normalize_activations),
    "5 epochs, rms, 6,000 validation digits": Trial(rms() | five_epochs()),
    "5 epochs, each pose normalized, primary poses too, 6,000 validation digits": Trial(
        rms() | five_epochs(), normalize_each_pose(primary=True)
    ),
    "toys, 5 epochs, each pose normalized, primary poses too": Trial(toys_rms(), normalize_each_pose(primary=True)),
    "toys, 5 epochs, rms, Muon": Trial(toys_rms() | MUON),
    "toys, 5 epochs, rms, Muon, a rotation per parent": Trial(toys_rms() | MUON, start_as_rotations(0.1)),
    "toys, 5 epochs, floor 1": Trial(em(variance_floor=1.0) | toys(32, 5) | peak(0.006)),
    "toys, 5 epochs, rms": Trial(rms() | toys(32, 5) | peak(0.006)),
    "toys, 5 epochs, rms, weight decay 0.1": Trial(
        rms() | toys(32, 5) | peak(0.006) | {"optimizer": "adamw", "weight_decay": 0.1}
    ),
    "toys, 5 epochs, rms, averaged weights": Trial(
        rms() | toys(32, 5) | peak(0.006) | averaged(0.998, toys(32, 5)["steps"])
    ),
    "toys, 5 epochs, rms, 0.2 of the primary capsules dropped": Trial(
        rms() | toys(32, 5) | peak(0.006), drop_primary_capsules(0.2)
    ),
    "toys, 5 epochs, rms, 0.5 of the primary capsules dropped": Trial(
        rms() | toys(32, 5) | peak(0.006), drop_primary_capsules(0.5)
    ),
    "toys, 5 epochs, rms, 0.2 of the primary types dropped": Trial(
        rms() | toys(32, 5) | peak(0.006), drop_primary_capsules(0.2, types=True)
    ),
    "toys, 5 epochs, rms, peak 0.012": Trial(rms() | toys(32, 5) | peak(0.012)),
    "toys, 5 epochs, rms, cross-entropy": Trial(rms() | toys(32, 5) | peak(0.006) | {"loss": "cross-entropy"}),
    "toys, 5 epochs, rms, floor 0.3": Trial(rms(variance_floor=0.3) | toys(32, 5) | peak(0.006)),
    "toys, 5 epochs, rms, 3 iterations": Trial(rms(3) | toys(32, 5) | peak(0.006)),
    "toys, 5 epochs, rms, weight decay 0.3": Trial(toys_rms(0.3)),
    "toys, 5 epochs, rms, weight decay 1": Trial(toys_rms(1.0)),
    "toys, 5 epochs, rms, flipped": Trial(toys_rms(warp="flip=0.5")),
    "toys, 5 epochs, rms, scaled by 0.2": Trial(toys_rms(warp="scale=0.2")),
    "toys, 5 epochs, rms, scaled by 0.2, sheared, turned": Trial(toys_rms(warp="rotate=10,shear=10,scale=0.2")),
    "toys, 5 epochs, rms, batch 16, peak 0.004": Trial(toys_rms(size=16, rate=0.004)),
    "toys, plain CNN, 3 epochs": Trial(
        {"model": "cnn-hinton2018", "options": {"hidden": 160}} | toys(64, 3) | peak(0.002)
    ),
    "toys, 6 epochs, average pooling": Trial(pooling()),
    "toys, 6 epochs, average pooling, weight decay 0.05": Trial(pooling(0.05)),
    "toys, 6 epochs, average pooling, weight decay 0.3": Trial(pooling(0.3)),
    "toys, 6 epochs, average pooling, weight decay 1": Trial(pooling(1.0)),
    "toys, 6 epochs, average pooling, weight decay 0.3, peak 0.01": Trial(pooling(0.3, rate=0.01)),
    "toys, 12 epochs, average pooling, weight decay 0.3": Trial(pooling(0.3, 12)),
    "toys, batch 32, floor 0.2, 3 iterations": Trial(em(3) | toys(32) | peak(0.005)),
    "toys, batch 32, floor 0.2": Trial(em() | toys(32) | peak(0.006)),
    "toys, batch 8, floor 0.2": Trial(em() | toys(8) | peak(0.003)),
    "toys, batch 8, floor 1": Trial(em(variance_floor=1.0) | toys(8) | peak(0.003)),
    "toys, batch 8, floor 1, 3 iterations": Trial(em(3, variance_floor=1.0) | toys(8) | peak(0.003)),
    "toys, batch 8, floor 1, 3 iterations, gradient through 2": Trial(
        em(3, variance_floor=1.0, gradient_steps=2) | toys(8) | peak(0.003)
    ),
}
