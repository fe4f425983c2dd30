r"""The processes that train one run together: how many there are, how they communicate, shared batch normalization.

Batch normalization over a batch that several processes share:

.. math:: \mu = \frac1N \sum_r \sum_{x \in r} x, \qquad \sigma^2 = \frac1N \sum_r \sum_{x \in r} (x - \mu)^2

The sums run over all processes r, in the forward pass for the statistics and in the backward pass for their gradients,
so the result is that of the whole batch in one process. torch's own SyncBatchNorm does this on CUDA only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, distributed, nn
from torch.distributed import DistError
from torch.nn.modules.batchnorm import _BatchNorm

from torchcaps.errors import TorchcapsError
from torchcaps.train.config import RunConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Parts of the messages of gloo and NCCL about a lost connection; gloo has no error type of its own.
LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL")


@dataclass(frozen=True)
class World:
    """The number of processes per machine and of machines. ``started`` is False if they are still to be started."""

    devices: int
    nodes: int
    started: bool

    @property
    def processes(self) -> int:
        return self.devices * self.nodes


def find_world(config: RunConfig, environment: Mapping[str, str] = os.environ) -> World:
    """Find the processes of a run from its config and from the variables that torchrun or Slurm set.

    If torchrun or srun started several processes, all of them train, because a run may be resumed with another number
    of processes. A config that asks for a different number raises an error.
    """
    wanted = config.devices * config.nodes
    outside = launched_processes(environment)
    if outside is None:
        if config.nodes > 1:
            raise TorchcapsError(
                f"{config.nodes} machines were requested, but torchcaps starts processes on this machine only: start "
                f"the command on all with 'srun --nodes {config.nodes} --ntasks-per-node {config.devices}' or torchrun"
            )
        return World(config.devices, 1, started=False)
    if wanted not in (1, outside.processes):
        raise TorchcapsError(
            f"the config asks for {config.devices} processes on {config.nodes} machines, but torchrun or Slurm started "
            f"{outside.processes}: make the numbers equal, or omit --devices and --nodes"
        )
    return outside


def launched_processes(environment: Mapping[str, str]) -> World | None:
    """Return the processes that torchrun, or srun with several tasks, started; None if there is only this one."""
    try:
        if "TORCHELASTIC_RUN_ID" in environment:
            devices = int(environment["LOCAL_WORLD_SIZE"])
            return World(devices, int(environment["WORLD_SIZE"]) // devices, started=True)
        tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))  # of this job step; a batch script has one
        if tasks > 1:
            nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
            return World(tasks // nodes, nodes, started=True)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise TorchcapsError(
            f"the environment variables of torchrun or Slurm are incomplete ({error}): start the command in a new shell"
        ) from error
    return None


def leave_processes() -> None:
    """Close the connections to the other processes: threads of gloo that are left at exit can abort this one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


class LostProcessError(TorchcapsError):
    """Another process of the run ended early."""


class DistributedContext:
    """This process (``rank``) among ``world_size`` of them. Only the main process (``is_main``) writes files."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.world_size = fabric.global_rank, fabric.world_size
        self.is_main = self.rank == 0

    def all_reduce_sum(self, *values: float) -> list[float]:
        """Return the sum of each value over all processes."""
        if self.world_size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set in any process, so that all of them act at the same step."""
        return [value > 0 for value in self.all_reduce_sum(*map(float, flags))]

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.world_size > 1:
            self.fabric.barrier()

    def abort(self, message: str) -> NoReturn:
        """Stop all processes for a reason that every one of them has found; only the main process reports it."""
        if not self.is_main:
            sys.exit(2)
        raise TorchcapsError(message)

    @contextlib.contextmanager
    def raise_together(self) -> Iterator[None]:
        """Stop all processes if the block raises a TorchcapsError in one of them; only that one reports it."""
        raised = None
        try:
            yield
        except TorchcapsError as error:
            raised = error
        if self.any(raised is not None)[0]:
            raise raised or SystemExit(2)

    def merge_dicts(self, own: dict[str, str]) -> dict[str, str]:
        """Merge dictionaries of all processes that compute on a CPU; the entry of the lowest rank wins."""
        if self.world_size == 1 or self.fabric.device.type != "cpu":
            return dict(own)
        found: list[dict[str, str]] = [{}] * self.world_size
        torch.distributed.all_gather_object(found, own)
        return {name: form for each in reversed(found) for name, form in each.items()}

    @contextlib.contextmanager
    def watched(self, path: Path) -> Iterator[None]:
        """Turn a broken connection to another process into an error of one sentence."""
        try:
            yield
        except (DistError, RuntimeError) as error:
            if self.world_size == 1 or not (isinstance(error, DistError) or any(word in str(error) for word in LOST)):
                raise
            raise LostProcessError(
                f"process {self.rank + 1} of {self.world_size} lost the connection to another process, which was "
                f"killed or failed. The last checkpoint is intact. Resume with: torchcaps train --resume {path}"
            ) from error


@contextlib.contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """Gather the weights of a sharded module while a block runs. Every process must enter it."""
    from torch.distributed.fsdp import FSDPModule  # takes a second to import

    if not isinstance(module, FSDPModule):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()


class AllReduceSum(torch.autograd.Function):
    """All-reduce sum in the forward pass and, for the gradient, in the backward pass."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total


def all_reduce_sum_autograd(value: Tensor) -> Tensor:
    """Sum a tensor over all processes, with gradient."""
    total: Tensor = AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d with the statistics of all processes; :func:`share_statistics` converts a BatchNorm2d.

    ``shared`` is False for a batch of which every process computes all images.
    """

    shared: bool

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (B, C, H, W)."""
        if not self.training or not self.shared:
            return super().forward(input)
        values = input.float()
        dims = (0, 2, 3)
        own = values.new_full((1,), values.numel() / values.shape[1])
        sums = all_reduce_sum_autograd(torch.cat([values.sum(dims), own]))
        count = sums[-1].detach()
        mean = sums[:-1] / count  # (C,)
        centered = values - mean[:, None, None]
        variance = all_reduce_sum_autograd(centered.square().sum(dims)) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), share)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), share)
        normal = centered * (variance + self.eps).rsqrt()[:, None, None]
        if self.affine:
            normal = normal * self.weight[:, None, None] + self.bias[:, None, None]
        return normal.to(input.dtype)


def share_statistics(model: nn.Module) -> None:
    """Convert every BatchNorm2d of a model to :class:`SharedBatchNorm2d`; the names of the weights do not change."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
            module.shared = True  # type: ignore[assignment]
        elif isinstance(module, _BatchNorm):
            raise TorchcapsError(
                f"{type(module).__name__} cannot be trained in several processes, which share the statistics of "
                "BatchNorm2d only: train with --devices 1, or use BatchNorm2d"
            )


def set_shared(model: nn.Module, shared: bool) -> None:
    """Set whether the processes share the next batch, or each computes all of it."""
    for module in model.modules():
        if isinstance(module, SharedBatchNorm2d):
            module.shared = shared
