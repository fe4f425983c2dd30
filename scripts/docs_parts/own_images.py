"""Speed and memory with large images, and detection by reconstruction: for the pages on one's own images."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from docs_parts.marks import Maker, table
from torchcaps.files import read_json


def large_images(results: Path) -> str:
    """Images per second and memory of training on large images, one thread."""
    found = read_json(results / "large-images.json")
    work, machine = found["workload"], found["environment"]
    channels, height, width = work["image"]
    rows = [
        [
            f"`{row['model']}`",
            f"{row['parameters']:,}",
            f"{row['images_per_second_median']:.0f}",
            f"{row['peak_megabytes']:.0f}",
        ]
        for row in found["rows"]
    ]
    words = (
        f"Training on {height}x{width} images with {channels} channels and {work['classes']} classes, batches of "
        f"{work['batch']}, one core ({machine['processor']}, torch {machine['versions']['torch']}). Memory is the peak "
        "of the whole process:"
    )
    return f"{words}\n\n{table(['model', 'parameters', 'images/s', 'MB'], rows, numbers=3)}"


def detection(results: Path) -> str:
    """AUROC of the detectors for each kind of images."""
    found = read_json(results / "detection-mnist.json")

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0%}"

    rows = [
        [
            row["images"] + ("" if row["epsilon"] is None else f", epsilon {row['epsilon']:g}"),
            share(row["success"]),
            *(f"{row[name]:.3f}" for name in ("reconstruction", "confidence", "baseline_confidence")),
            share(row["undetected"]),
        ]
        for row in found["rows"]
    ]
    head = ["images", "success", "reconstruction", "confidence", "plain network", "undetected"]
    words = (
        f"AUROC of `{found['run']}`, {found['test_images']} test images of MNIST against as many others; 0.5 is "
        "chance. *confidence* is the largest probability of the same network, *plain network* that of "
        f"`{found['baseline']}`, for attacks on itself. *success*: images that the attack turns from "
        "correct to wrong. *undetected*: share of the images that reconstruction misses "
        f"at {found['false_alarms']:.0%} false alarms."
    )
    return f"{words}\n\n{table(head, rows, numbers=5)}"


def makers(results: Path) -> dict[str, Maker]:
    return {"large-images": partial(large_images, results), "detection": partial(detection, results)}
