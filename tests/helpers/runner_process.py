"""A runner in its own process, killed at STEP: python -m tests.helpers.runner_process FOLDER EPOCHS [STEP]"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.helpers.killed_training import kill_before
from tests.helpers.small_paper import new_context, small_jobs, small_spec
from torchcaps.reproduce.runner import run_jobs


def main() -> None:
    folder, epochs, *step = Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    if step:
        kill_before(step[0])
    jobs = small_jobs(spec=small_spec(epochs=epochs))
    run_jobs(jobs, new_context(folder, jobs))


if __name__ == "__main__":
    main()
