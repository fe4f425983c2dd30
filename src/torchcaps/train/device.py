"""Where and how precisely a run computes."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchcaps.environment import processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.kernels.dispatch import kernel_choice
from torchcaps.train.config import RunConfig
from torchcaps.train.distributed import World, find_world

# MERGED Numbers too small for a processor's fast way.
if TYPE_CHECKING:  # takes as long to import as torch does, and only a training needs it
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.strategy import Strategy
    from torch.distributed.device_mesh import DeviceMesh

log = logging.getLogger(__name__)


def make_fabric(config: RunConfig) -> Fabric:
    """Device and precision by the settings; "auto" takes the fastest device that is there.

    "auto" precision is float32, but on CUDA devices that have it bfloat16 around the routing: routing itself
    always computes in float32 or better. Where there are several processes, this one joins the others.
    """
    from lightning_fabric import Fabric

    device = config.device if config.device != "auto" else fastest_device()
    kind = device.partition(":")[0]
    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if kind == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
    if precision == "bf16-mixed" and kind == "cpu":
        check_bfloat16()
    world = find_world(config)
    if world.processes > 1 and ":" in device:
        raise TorchcapsError(f"device '{device}' is one, but {world.processes} processes need one each: write '{kind}'")
    devices = [int(device.partition(":")[2])] if ":" in device else world.devices
    # Where Slurm is installed but not used, nobody needs to be told so at every training.
    warnings.filterwarnings("ignore", message="The `srun` command is available")
    try:
        if world.processes == 1:
            return Fabric(accelerator=kind, devices=devices, precision=precision)
        strategy = choose_strategy(config.strategy, world)
        fabric = Fabric(
            accelerator=kind, devices=devices, num_nodes=world.nodes, strategy=strategy, precision=precision
        )
        fabric.launch()
    except Exception as error:  # Fabric raises its own types for devices that are not there
        raise TorchcapsError(
            f"device '{config.device}' cannot be used: {error}. One of: auto, cpu, cuda, mps"
        ) from error
    return fabric


def choose_strategy(name: str, world: World) -> Strategy:
    """How processes share a batch: all weights in each (ddp), or a part of every weight in each (fsdp)."""
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    if name == "ddp":
        # A decoder whose loss has no weight gets no gradient, and must not be waited for.
        return DDPStrategy(find_unused_parameters=True)
    # Compiled loops hold on to the memory of a weight, which is to be given back after every step.
    os.environ["TORCHCAPS_KERNELS"] = "plain"
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")  # nobody changes what the model returns
    return ModelParallelStrategy(shard_module, data_parallel_size=world.processes, tensor_parallel_size=1)


def shard_module(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Spread the weights of a module over the processes."""
    from torch.distributed.fsdp import fully_shard

    for parameter in module.parameters():  # fully_shard takes no other order in memory
        parameter.data = parameter.data.contiguous()
    fully_shard(module, mesh=mesh["data_parallel"])
    return module


def check_bfloat16() -> None:
    """Try bfloat16 matrix products in a process of their own.

    Some virtual machines claim matrix instructions (AMX) that they do not carry out: the process would die with
    "illegal instruction" in the middle of a run.
    """
    trial = "import torch; x = torch.ones(64, 16, 8).bfloat16(); torch.bmm(x, x.transpose(1, 2))"
    if subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode:
        raise TorchcapsError(
            "this machine claims bfloat16 matrix instructions but does not carry them out: use --precision 32-true, "
            "or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        )


def describe_conditions(processes: int) -> dict[str, Any]:
    """What the last bits of a run's weights depend on, besides its settings."""
    return {
        "threads": torch.get_num_threads(),
        "processes": processes,
        "processor": processor_name(),
        "torch": torch.__version__,
        "kernels": kernel_choice(),
    }


def warn_changed_conditions(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn if a run goes on under other conditions than before; a run of an earlier version has recorded none."""
    changed = [
        f"{name} {before[name]} before, {now[name]} now" for name in now if before.get(name, now[name]) != now[name]
    ]
    if changed:
        log.warning(
            "the weights will differ in their last bits from those of an undisturbed run: %s", "; ".join(changed)
        )


def fastest_device() -> str:
    """The best device of this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


TINY = 1e-39  # smaller than the smallest normal number of 32 bits


def denormals_flushed() -> bool:
    """Whether this thread takes such numbers as zero."""
    return bool((torch.tensor([TINY]) * 1.0).item() == 0.0)


@contextlib.contextmanager
def flush_denormals() -> Iterator[None]:
    """Take numbers that are too small to be normal as zero, where the processor can.

    In a network whose capsules collapse, and EM routing with many iterations makes them, most assignments become such
    numbers; each costs the processor far more than another, and a training crawls instead of going on.
    """
    before = denormals_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
