"""The processes that train one run together: what each of them does, and what they agree on.

With one process every function here gives back what it was given, so the loop is the same for one and for many.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import nn
from torch.distributed import DistError

from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# How gloo and NCCL begin their words when the other end of a connection is gone; gloo has no error type of its own.
LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL")


class LostProcessError(TorchcapsError):
    """Another process of the run ended before its work was done."""


class Ranks:
    """This process (``rank``) among ``count`` of them; the ``first`` one writes and speaks for all."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.count = fabric.global_rank, fabric.world_size
        self.first = self.rank == 0

    def total(self, *values: float) -> list[float]:
        """The sum over all processes of each value."""
        if self.count == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(together)
        found: list[float] = together.tolist()
        return found

    def any(self, *flags: bool) -> list[bool]:
        """Of each flag, whether it is set in any process: what one was asked to do, all do, at the same step."""
        return [value > 0 for value in self.total(*map(float, flags))]

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            self.fabric.barrier()

    def refuse(self, message: str) -> NoReturn:
        """Stop all processes, for a reason that all have seen; only the first says it."""
        if not self.first:
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
        if self.count == 1 or self.fabric.device.type != "cpu":
            return dict(own)
        found: list[dict[str, str]] = [{}] * self.count
        torch.distributed.all_gather_object(found, own)
        return {name: form for each in reversed(found) for name, form in each.items()}

    @contextlib.contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        """Turn the loss of another process, which shows as a broken connection, into one sentence."""
        try:
            yield
        except (DistError, RuntimeError) as error:
            if self.count == 1 or not (isinstance(error, DistError) or any(word in str(error) for word in LOST)):
                raise
            raise LostProcessError(
                f"process {self.rank + 1} of {self.count} lost the connection to another one, which was killed or "
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
