"""How many processes there are to be, and who started this one: a person, torchrun, Slurm, or torchcaps itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import nn
from torch.distributed import DistError

from torchcaps.errors import TorchcapsError
from torchcaps.train.config import RunConfig


# MERGED The processes that train one run together: what each of them does, and what they agree on.
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


if TYPE_CHECKING:
    from lightning_fabric import Fabric

# How gloo and NCCL begin their words when the other end of a connection is gone; gloo has no error type of its own.
LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL")


class LostProcessError(TorchcapsError):
    """Another process of the run ended before its work was done."""


class DistributedContext:
    """This process (``rank``) among ``world_size`` of them; the main one (``is_main``) writes and speaks for all."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.world_size = fabric.global_rank, fabric.world_size
        self.is_main = self.rank == 0

    def all_reduce_sum(self, *values: float) -> list[float]:
        """The sum over all processes of each value."""
        if self.world_size == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(together)
        found: list[float] = together.tolist()
        return found

    def any(self, *flags: bool) -> list[bool]:
        """Of each flag, whether it is set in any process: what one was asked to do, all do, at the same step."""
        return [value > 0 for value in self.all_reduce_sum(*map(float, flags))]

    def wait(self) -> None:
        """Until all are here."""
        if self.world_size > 1:
            self.fabric.barrier()

    def refuse(self, message: str) -> NoReturn:
        """Stop all processes, for a reason that all have seen; only the first says it."""
        if not self.is_main:
            sys.exit(2)
        raise TorchcapsError(message)

    @contextlib.contextmanager
    def refusing_together(self) -> Iterator[None]:
        """Stop all processes if the block raises a TorchcapsError in one of them; only that one says why."""
        refusal = None
        try:
            yield
        except TorchcapsError as error:
            refusal = error
        if self.any(refusal is not None)[0]:
            raise refusal or SystemExit(2)

    def union(self, own: dict[str, str]) -> dict[str, str]:
        """Entries of all processes that compute on a CPU; where two differ, that of the first process."""
        if self.world_size == 1 or self.fabric.device.type != "cpu":
            return dict(own)
        found: list[dict[str, str]] = [{}] * self.world_size
        torch.distributed.all_gather_object(found, own)
        return {name: form for each in reversed(found) for name, form in each.items()}

    @contextlib.contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        """Turn the loss of another process, which shows as a broken connection, into one sentence."""
        try:
            yield
        except (DistError, RuntimeError) as error:
            if self.world_size == 1 or not (isinstance(error, DistError) or any(word in str(error) for word in LOST)):
                raise
            raise LostProcessError(
                f"process {self.rank + 1} of {self.world_size} lost the connection to another one, which was killed or "
                f"failed. What was saved is whole: go on with torchcaps train --resume {folder}"
            ) from error


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Inside, a module whose weights are spread over the processes has them all. Every process must come here."""
    from torch.distributed.fsdp import FSDPModule  # takes a second to import, which only a training has

    if not isinstance(module, FSDPModule):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()
