"""How many processes there are to be, and who started this one: a person, torchrun, Slurm, or torchcaps itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from torchcaps.errors import TorchcapsError
from torchcaps.train.config import RunConfig


@dataclass(frozen=True)
class World:
    """Processes on each machine, and machines. ``started`` is False for processes that are still to be started."""

    devices: int
    nodes: int
    started: bool

    @property
    def processes(self) -> int:
        return self.devices * self.nodes


def find_world(config: RunConfig, environment: Mapping[str, str] = os.environ) -> World:
    """What the settings want and what is there.

    Where torchrun or srun has started several processes, that many train, whatever the settings say by default: a run
    may be resumed with another number. Settings that contradict it are refused.
    """
    wanted = config.devices * config.nodes
    outside = started_outside(environment)
    if outside is None:
        if config.nodes > 1:
            raise TorchcapsError(
                f"{config.nodes} machines were asked for, but torchcaps starts processes on this one alone: start the "
                f"same command on all with 'srun --nodes {config.nodes} --ntasks-per-node {config.devices}' or torchrun"
            )
        return World(config.devices, 1, started=False)
    if wanted not in (1, outside.processes):
        raise TorchcapsError(
            f"the settings want {config.devices} processes on {config.nodes} machines, but {outside.processes} were "
            "started from outside: make the numbers agree, or leave out --devices and --nodes"
        )
    return outside


def started_outside(environment: Mapping[str, str]) -> World | None:
    """The processes that torchrun, or srun with more than one task, has started; None if there is only this one."""
    try:
        if "TORCHELASTIC_RUN_ID" in environment:
            devices = int(environment["LOCAL_WORLD_SIZE"])
            return World(devices, int(environment["WORLD_SIZE"]) // devices, started=True)
        tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))  # of this step; a batch script itself is one
        if tasks > 1:
            nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
            return World(tasks // nodes, nodes, started=True)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise TorchcapsError(
            f"torchrun or Slurm left its variables incomplete ({error}): start the command again from a fresh shell"
        ) from error
    return None
