"""The start of a run, and of a run that goes on elsewhere, also where several processes start at once."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torch import distributed

from torchcaps.errors import TorchcapsError
from torchcaps.train.config import RunConfig, check
from torchcaps.train.device import make_fabric
from torchcaps.train.ranks import Ranks
from torchcaps.train.run_folder import RunFolder, is_free, new_run
from torchcaps.train.world import find_world


def begin_run(config: RunConfig, path: Path) -> RunFolder:
    """Make the folder of a new run, which must be empty; of processes that torchrun or Slurm started, one does it."""
    if not find_world(config).started:
        return new_run(config, checked_empty(path))
    ranks = Ranks(make_fabric(config))
    with ranks.watched(path):
        path = Path(ranks.fabric.broadcast(str(path)))  # a name made from the time may differ
        if ranks.first:
            new_run(config, checked_empty(path))
        ranks.wait()
    return RunFolder(path)


def checked_empty(path: Path) -> Path:
    """The path, if nothing is there yet, or only the beginning of a run that was killed."""
    if not is_free(path):
        resume = f", or go on with it by --resume {path}" if RunFolder(path).config_file.is_file() else ""
        raise TorchcapsError(f"{path} is not empty: name another folder{resume}")
    return path


def move_run(run: RunFolder, **changes: object) -> RunFolder:
    """Let a run go on elsewhere: on another device, or in another number of processes."""
    if not changes:
        return run
    config = run.config()
    # Processes that torchrun or Slurm started all come here at once.
    with contextlib.nullcontext() if find_world(config).started else run.locked():
        run.write_config(check(config.model_dump() | changes))
    return run


def is_first() -> bool:
    """Whether this process speaks for all that train with it."""
    return not distributed.is_initialized() or distributed.get_rank() == 0
