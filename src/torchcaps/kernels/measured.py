"""Which form of a convolution is faster here: measured once for a layer and a batch, and kept between processes.

The choice is kept on disk, not only for speed: the two forms round differently, and a run that is resumed must take
the form that it took before to end with the same weights.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.environment import package_version, processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json
from torchcaps.kernels.convolution import spectral_convolution
from torchcaps.progress import progress_bar

ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """What the speed of a convolution depends on. ``mode``: "training", "attack" (images alone) or "inference"."""

    batch: int
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int
    mode: str
    threads: int


def worth_measuring(case: Case) -> bool:
    """Whether Fourier transforms could win at all: wide kernels, many channels, small maps, more than a few images."""
    side = -(-case.size // case.stride)
    return case.kernel >= 5 and min(case.inputs, case.outputs) >= 16 and side <= 16 and case.batch >= 8


@cache
def spectral_is_faster(case: Case) -> bool:
    """Whether the Fourier form won the measurement for this case, now or in an earlier process."""
    known = measured_cases()
    # Another processor or another PyTorch is another measurement: homes are shared in a cluster.
    name = " ".join(map(str, (*astuple(case), processor_name(), "torch", package_version("torch"))))
    if name not in known:
        # Another process may have measured at the same time: what it wrote stays, so that both agree.
        known = {name: measure(case)} | measured_cases()
        with contextlib.suppress(TorchcapsError):  # a home that cannot be written: every process measures
            write_json(_file(), known)
    return known[name]["spectral"] < known[name]["pytorch"]


def measure(case: Case) -> dict[str, float]:
    """Median seconds of both forms, taking turns."""
    generator = torch.Generator().manual_seed(0)  # the run's own random numbers stay as they are
    shape = (case.batch, case.inputs, case.size, case.size)
    images = torch.rand(shape, generator=generator).contiguous(memory_format=torch.channels_last)
    kernels = torch.rand(case.outputs, case.inputs, case.kernel, case.kernel, generator=generator) - 0.5
    weight = kernels.contiguous(memory_format=torch.channels_last)
    images.requires_grad_(case.mode != "inference")
    weight.requires_grad_(case.mode == "training")

    def run(form: str) -> float:
        began = time.perf_counter()
        with torch.set_grad_enabled(case.mode != "inference"):
            made: Tensor
            if form == "spectral":
                made = spectral_convolution(images, weight, case.stride)
            else:
                made = F.conv2d(images, weight, stride=case.stride)
            if made.requires_grad:
                made.backward(torch.ones_like(made))
        return time.perf_counter() - began

    seconds: dict[str, list[float]] = {"pytorch": [], "spectral": []}
    with progress_bar("finding the faster convolution (once for this layer, then kept)", None):
        for number in range(1 + ROUNDS):
            for form, found in seconds.items():
                spent = run(form)
                if number:  # the first time is for warming up
                    found.append(spent)
    return {form: statistics.median(found) for form, found in seconds.items()}


def _file() -> Path:
    return cache_folder() / "convolutions.json"


def measured_cases() -> dict[str, dict[str, float]]:
    """Seconds of both forms for every case that was measured; a file that somebody damaged counts as none."""
    kept = _file()
    if not kept.is_file():
        return {}
    try:
        return {
            str(name): {form: float(seconds[form]) for form in ("pytorch", "spectral")}
            for name, seconds in read_json(kept).items()
        }
    except (TorchcapsError, AttributeError, TypeError, ValueError, KeyError):
        return {}
