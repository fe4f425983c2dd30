"""Run a command twice in separate processes and compare the output byte by byte, except for times."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

COMMON = ["--data", "glyphs", "--train-images", "200", "--epochs", "2", "--batch-size", "32", "--device", "cpu"]
SMALL = ["--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]
MODELS = {
    "capsnet": SMALL,
    "capsnet-l2": SMALL,
    "ar-capsnet": [*SMALL, "--set", "primary_size=4", "--set", "capsule_size=4"],
    "matrix-capsnet-68k": [],
    "convnet-avg": ["--set", "filters=8"],
}
TIMES = ("training_seconds", "training_core_seconds", "images_per_second", "seconds", "environment")


def train(folder: Path, model: str, threads: int) -> None:
    program = str(Path(sys.executable).with_name("torchcaps"))
    command = [program, "train", model, *COMMON, *MODELS[model], "--out", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise AssertionError(done.stderr)


def without_times(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key not in TIMES}


def content(folder: Path) -> dict[str, object]:
    """The files of a run without times."""
    metrics = csv.DictReader(io.StringIO((folder / "metrics.csv").read_text()))
    last = load_file(folder / "checkpoints" / "last.safetensors")
    return {
        "config.yaml": (folder / "config.yaml").read_bytes(),
        "metrics.csv": [without_times(row) for row in metrics],
        "result.json": without_times(json.loads((folder / "result.json").read_text())),
        "best.safetensors": (folder / "checkpoints" / "best.safetensors").read_bytes(),
        "last.safetensors": {name: value.numpy().tobytes() for name, value in last.items()},
    }


def differences(one: Path, other: Path) -> list[str]:
    """Names of files that differ between two runs."""
    first, second = content(one), content(other)
    return [name for name in first if first[name] != second[name]]
