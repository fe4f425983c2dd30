"""Device, precision and strategy of a run, and the conditions that the last bits of its weights depend on."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
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
from torchcaps.kernels.dispatch import kernel_choice, restart_threads
from torchcaps.train.config import RunConfig
from torchcaps.train.distributed import World, find_world, leave_processes

if TYPE_CHECKING:  # lightning_fabric takes as long to import as torch, and only training needs it
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.strategy import Strategy
    from torch.distributed.device_mesh import DeviceMesh

log = logging.getLogger(__name__)

OMP_PAUSE_HARD = 2  # from omp.h: end the worker threads of the calling thread


def make_fabric(config: RunConfig) -> Fabric:
    """Create the Fabric of a config; the device "auto" is the fastest one available.

    The precision "auto" is float32, or bfloat16 mixed precision on CUDA devices that support it. Routing always
    computes in float32 or better. If there are several processes, this one joins them.
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
        raise TorchcapsError(
            f"device '{device}' is a single device, but {world.processes} processes need one each: use '{kind}'"
        )
    devices = [int(device.partition(":")[2])] if ":" in device else world.devices
    # Fabric warns at every training if Slurm is installed but not used.
    warnings.filterwarnings("ignore", message="The `srun` command is available")
    try:
        if world.processes == 1:
            return Fabric(accelerator=kind, devices=devices, precision=precision)
        strategy = choose_strategy(config.strategy, world)
        fabric = Fabric(
            accelerator=kind, devices=devices, num_nodes=world.nodes, strategy=strategy, precision=precision
        )
        fabric.launch()
        atexit.register(leave_processes)
    except Exception as error:  # Fabric raises various types for unavailable devices
        raise TorchcapsError(
            f"device '{config.device}' cannot be used: {error}. One of: auto, cpu, cuda, mps"
        ) from error
    return fabric


def choose_strategy(name: str, world: World) -> Strategy:
    """Return the strategy: each process holds all weights (ddp) or a shard of them (fsdp)."""
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    if name == "ddp":
        # A decoder whose loss has weight 0 gets no gradients.
        return DDPStrategy(find_unused_parameters=True)
    # Compiled loops keep references to the weights, which FSDP frees after every step.
    os.environ["TORCHCAPS_KERNELS"] = "plain"
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")  # the output of the model is not modified
    return ModelParallelStrategy(shard_module, data_parallel_size=world.processes, tensor_parallel_size=1)


def shard_module(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard the weights of a module over the processes."""
    from torch.distributed.fsdp import fully_shard

    for parameter in module.parameters():  # fully_shard takes contiguous parameters only
        parameter.data = parameter.data.contiguous()
    fully_shard(module, mesh=mesh["data_parallel"])
    return module


def check_bfloat16() -> None:
    """Try a bfloat16 matrix product in a subprocess.

    Some virtual machines report matrix instructions (AMX) that they do not support: the training process would be
    killed by an illegal instruction.
    """
    trial = "import torch; x = torch.ones(64, 16, 8).bfloat16(); torch.bmm(x, x.transpose(1, 2))"
    if subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode:
        raise TorchcapsError(
            "this machine reports bfloat16 matrix instructions but does not support them: use --precision 32-true, "
            "or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        )


def training_conditions(processes: int) -> dict[str, Any]:
    """Describe what the last bits of the weights depend on, besides the config."""
    return {
        "threads": torch.get_num_threads(),
        "processes": processes,
        "processor": processor_name(),
        "torch": torch.__version__,
        "kernels": kernel_choice(),
    }


def warn_changed_conditions(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn if a resumed run has other conditions than before; runs of earlier versions recorded none."""
    changed = [
        f"{name} {before[name]} before, {now[name]} now" for name in now if before.get(name, now[name]) != now[name]
    ]
    if changed:
        log.warning(
            "the weights will differ in the last bits from those of an uninterrupted run: %s", "; ".join(changed)
        )


def fastest_device() -> str:
    """Return the fastest device of this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def denormals_flushed() -> bool:
    """Whether this thread flushes denormals to zero."""
    return bool((torch.tensor([1e-39]) * 1.0).item() == 0.0)


@contextlib.contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormals to zero in all threads of PyTorch and of the kernels while a block runs.

    Does nothing if the processor does not support it. When capsules collapse, as with many iterations of EM routing,
    most assignments become denormal, and arithmetic with denormals is many times slower.
    """
    before = denormals_flushed()
    _set_flush_denormal(True)
    try:
        yield
    finally:
        _set_flush_denormal(before)


def _set_flush_denormal(flush: bool) -> None:
    """Set the mode of this thread and end its worker threads, because only new threads inherit the mode."""
    torch.set_flush_denormal(flush)
    restart_threads()
    if sys.platform.startswith("linux"):
        with contextlib.suppress(AttributeError):  # an OpenMP older than 5.0: its threads keep their mode
            ctypes.CDLL(None).omp_pause_resource_all(OMP_PAUSE_HARD)
