"""Write docs/reliability.md from the result files: python scripts/reliability_page.py

Each promise stands with how it is tested and what was measured; a test holds the page to the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "reliability"
NOT_YET = "not measured yet"
Result = dict[str, Any]

INTRODUCTION = """# Reliability

What is promised, how it is tested, and what was measured. The table is made by `scripts/reliability_page.py` from the
files in `results/reliability/`, which the named commands write; nobody types a figure.
"""
WORDS = """## Many processes and machines

`torchcaps train capsnet --devices 2` starts two processes that share every batch. On several machines the same command
is started on each by `srun --nodes 2 --ntasks-per-node 2 torchcaps train capsnet --nodes 2 --devices 2` or by torchrun,
which are recognised. `--strategy fsdp` spreads the weights over the processes.

- A batch is divided among the processes, so a step is the same step whatever their number: gradients are weighted by
  images, batch normalisation and discriminative routing see the whole batch, and every image is seen once an epoch.
- The random changes of an image are those that it gets in one process. Dropout is not: its numbers belong to a process.
- A run may be resumed with another number of processes: `torchcaps train --resume RUN --devices 4`. With the same
  number the resumed run is exact, to the bit. With another one it is exact but for rounding, since sums are taken in
  another order; in models with dropout (ar-capsnet, cnn-hinton2018) it is a run with other random numbers.
- Rounding is not always small: a bias before a batch normalisation has no gradient but rounding errors, which RMSprop
  and Adam scale up to whole steps. So the weights of ar-capsnet differ visibly after some steps, its gradients do not.
- The first process writes; all wait until it has. A stop request (Ctrl-C, SIGTERM, SIGUSR1, SIGHUP) that reaches one
  process stops all of them at the same step, with everything saved. If one is killed, the others say so and stop.

## Numbers

- An empty batch gives an empty output, in every model.
- Models in float16 and bfloat16 (`model.half()`, `model.bfloat16()`) take images of that type. Routing and the lengths
  of capsules are computed in float32 and rounded.
- A model refuses images with NaN or infinite pixels, if they are on a CPU. On other devices the check would wait for
  the device and is skipped; so it is while a graph is traced. Training checks the loss and the gradient instead, on
  every device.

## Threads and forked processes

- Several threads may use one model for predictions and for `inspect_layers` at the same time. `use_kernels` holds in
  the thread that enters it; threads started inside do not inherit it.
- A process that was forked after torch has computed something must compute on one thread: call
  `torch.set_num_threads(1)` in it first, as the workers of a `DataLoader` do. On more threads it may wait forever,
  because the OpenMP runtime of PyTorch does not survive a fork. Where several threads are needed, start processes with
  `multiprocessing.get_context("spawn")`.

## What is not promised

- One thread and two threads give different last bits, and so do different processors, devices and versions of torch.
  A resumed run warns if one of them has changed. `environment.json` has what the run was trained with, and the form of
  each convolution, which a resumed run takes from there, whatever is measured on its machine.
- `bf16-mixed` trains, but its results are those of bfloat16.
- A plugin is a program: `--plugin FILE` runs it with your rights. Nothing else that torchcaps reads is ever run.
- Not tried on a machine with a GPU, nor on two machines: here are two processes on one.
"""


def fuzzed(result: Result) -> str:
    return (
        f"{result['inputs']:,} damaged files through {len(result['readers'])} readers: {len(result['wrong'])} broke "
        f"the promise; memory grew by {result['megabytes_grown']:.0f} MB"
    )


def stressed(result: Result) -> str:
    troubles = sum(len(each["troubles"]) for each in result["models"].values())
    return (
        f"{result['images']:,} images through {len(result['models'])} of {result['models_in_all']} models: {troubles} "
        "answers or gradients that were no numbers"
    )


def tortured(result: Result) -> str:
    refusals = sum(each["refusals"] for each in result["scenarios"].values())
    return f"{result['kills']} kills, {refusals} refused writes: {result['wrong']} things wrong"


def shared(result: Result) -> str:
    worst = max(result["rows"], key=lambda row: row["largest_difference"])
    return (
        f"at most {worst['largest_difference']:.1e} after {worst['steps']} steps ({len(result['rows'])} pairs of runs)"
    )


def repeated(result: Result) -> str:
    promised = [row for row in result["rows"] if row["promised"]]
    same = sum(not row["differ"] for row in promised)
    return f"{same} of {len(promised)} pairs of runs the same"


def queued(result: Result) -> str:
    return f"{result['passed']} tests passed, {result['failed']} failed, Slurm {result['slurm']}"


# What is promised, the command that tests it, the file it writes, and how the file is read.
PROMISES: list[tuple[str, str, str, Callable[[Result], str]]] = [
    (
        "Work that is killed at any moment goes on, and ends with the same weights to the bit; no result is lost or "
        "done twice; a full or read-only disk is met with one sentence",
        "python -m tests.torture",
        "torture",
        tortured,
    ),
    (
        "Whatever lies in a file, it is read or refused with one sentence, and nothing of it is run",
        "python -m tests.fuzz",
        "fuzz",
        fuzzed,
    ),
    ("Answers and gradients are numbers, whatever the image", "python -m tests.numerics", "numerics", stressed),
    (
        "Two processes end with the weights of one, to 1e-5",
        "python -m tests.train.measure_processes",
        "processes",
        shared,
    ),
    (
        "The same command on the same machine and number of threads gives the same bytes, but for times",
        "python -m tests.determinism",
        "determinism",
        repeated,
    ),
    ("Jobs of a Slurm cluster lose nothing and do nothing twice", "make test-slurm", "slurm", queued),
]


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    rows = ["| promise | tested by | measured |", "| --- | --- | --- |"]
    machines = set()
    for promise, command, name, read in PROMISES:
        file = results / f"{name}.json"
        measured = NOT_YET
        if file.is_file():
            result = json.loads(file.read_text(encoding="utf-8"))
            measured = read(result)
            found = result["environment"]
            machines.add(f"{found['processor']}, {found['cores']} cores, torch {found['versions']['torch']}")
        rows.append(f"| {promise} | `{command}` | {measured} |")
    where = f"\nMeasured on: {'; '.join(sorted(machines))}.\n" if machines else ""
    return f"{INTRODUCTION}\n" + "\n".join(rows) + f"\n{where}\n{WORDS}"


def main() -> None:
    (ROOT / "docs" / "reliability.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
