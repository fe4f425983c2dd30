"""python -m tests.train.measure_processes: one process against two, to results/reliability/processes.json"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.reliability import RESULTS, provenance
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_json
from torchcaps.train import RunFolder, fit_run, new_run, resolve

# 175 images for training in batches of 29: an odd number, and at the end of an epoch a batch of one image.
SETTINGS = {"data": "glyphs", "train_images": 195, "batch_size": 29, "epochs": 2, "augmentation": "shift=2"}
JITTER = "shift=2,normalized-contrast=0.8,normalized-brightness=0.2"
SMALL = {"filters": 8, "types": 2, "hidden": [16, 16]}
CASES = {
    "capsnet": {"model": "capsnet", "options": SMALL},
    # The norm of the gradient is that of all processes together; contrast is drawn for the global batch; Muon needs
    # whole kernels, of which a process may hold a shard.
    "clipped": {
        "model": "capsnet",
        "options": SMALL,
        "clip_norm": 0.05,
        "augmentation": JITTER,
        "optimizer": "muon",
    },
    # Batch statistics; without dropout, whose random numbers belong to a process.
    "ar-capsnet": {"model": "ar-capsnet", "options": SMALL | {"primary_size": 4, "capsule_size": 4, "dropout": 0.0}},
    # A routing that learns outside backpropagation, and a decoder without a gradient.
    "capsnet-l1": {"model": "capsnet-l1", "options": SMALL, "reconstruction_weight": 0.0},
}
CLOSE = 1e-5
PAIRS = ["capsnet/ddp", "capsnet/fsdp", "capsnet-l1/ddp", "capsnet-l1/fsdp"]


def make(path: Path, case: str, **more: object) -> RunFolder:
    return new_run(resolve(**{**SETTINGS, "device": "cpu", **CASES[case], **more}), path)


def difference(one: RunFolder, other: RunFolder) -> float:
    """The largest difference between two runs' last weights; infinite if one is not a number."""
    first, second = (
        {name: value for name, value in load_file(run.last).items() if name.startswith("model.")}
        for run in (one, other)
    )
    assert first.keys() == second.keys()
    gaps = [float((first[name].double() - second[name].double()).abs().max()) for name in first]
    return math.inf if any(map(math.isnan, gaps)) else max(gaps)


def measure(pair: str, folder: Path) -> dict[str, Any]:
    """Train in one process (folder/alone) and in two (folder/together), and compare the weights."""
    model, strategy = pair.split("/")
    alone, together = make(folder / "alone", model), make(folder / "together", model, devices=2, strategy=strategy)
    row: dict[str, Any] = {"model": model, "strategy": strategy, "processes": 2}
    try:
        fit_run(alone)
        steps = fit_run(together).step
    except TorchcapsError as error:  # the other pairs are still measured
        return row | {"steps": 0, "largest_difference": None, "error": str(error)[-300:]}
    gap = difference(alone, together)
    return row | {"steps": steps, "largest_difference": gap if math.isfinite(gap) else None}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.train.measure_processes", description=__doc__)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS, help="model/strategy")
    parser.add_argument("--out", type=Path, default=RESULTS / "processes.json")
    asked = parser.parse_args(arguments)
    made_by, rows = provenance(), []
    for pair in asked.pairs:
        with tempfile.TemporaryDirectory() as name:
            rows.append(measure(pair, Path(name)))
        print(json.dumps(rows[-1]), flush=True)
    write_json(asked.out, {"rows": rows, "promised": CLOSE} | made_by)
    return int(not all(row["largest_difference"] is not None and row["largest_difference"] < CLOSE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
