"""A training process that sends itself SIGKILL at a given moment.

Usage: python -m tests.helpers.killed_training FOLDER MOMENT NUMBER ORDER

MOMENT: "step" (before step NUMBER), "validation" (the NUMBER-th), "between" (after writing the best weights and
before writing the checkpoint), "writing" (in the middle of writing a checkpoint) or "never". ORDER: "pure" is the
real order of batches; "stateful" replaces it by a generator that lives in the process, as most public code has it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.train import checkpoint, fit_run, loop, open_run


def die_at_call(module: Any, name: str, number: int) -> None:
    """Replace a function by one that kills the process when it is called for the NUMBER-th time."""
    function, calls = getattr(module, name), 0

    def counted(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **settings)

    setattr(module, name, counted)


def die_in_the_middle_of_writing(number: int) -> None:
    function, calls = checkpoint.save_file, 0

    def half(tensors: Any, path: Path, metadata: Any) -> None:
        nonlocal calls
        calls += 1
        function(tensors, path, metadata)
        if calls == number:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save_file = half  # type: ignore[assignment]


def kill_before(number: int) -> None:
    """Kill the process before step NUMBER."""
    seed_step = loop.seed_step

    def kill_before_step(seed: int, step: int, rank: int) -> None:
        if step == number:
            os.kill(os.getpid(), signal.SIGKILL)
        seed_step(seed, step, rank)

    loop.seed_step = kill_before_step


def main() -> None:
    folder, moment, number, order = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    if order == "stateful":
        generator = torch.Generator().manual_seed(0)
        loop.batch_indices = lambda count, size, seed, step: torch.randperm(count, generator=generator)[:size]
    if moment == "step":
        kill_before(number)
    elif moment == "validation":
        die_at_call(loop, "evaluate_accuracy", number)
    elif moment == "between":
        original = loop.save_weights

        def save_then_arm(*arguments: Any, **settings: Any) -> None:
            original(*arguments, **settings)
            die_at_call(loop, "save_checkpoint", 1)

        loop.save_weights = save_then_arm
    elif moment == "writing":
        die_in_the_middle_of_writing(number)
    fit_run(open_run(folder))


if __name__ == "__main__":
    main()
