"""Autotuning of convolutions: time PyTorch's and the Fourier form once per layer and batch size, and cache the result.

Timings are stored in the user's cache directory. The two forms round differently, so a resumed run must use the same
forms as before to end with the same weights: they are saved with the run, and ``use_forms`` restores them.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.environment import package_version, processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, file_name, read_json, write_json_once
from torchcaps.kernels.convolution import LARGEST_SIDE, spectral_convolution
from torchcaps.progress import progress_bar

FOURIER_VERSION = 2  # of the Fourier form: increased when its speed changes, so that it is timed again
ROUNDS = 3
# Timed alone, with warm caches, the Fourier form looks slightly better than it is within a model.
REQUIRED_RATIO = 0.85


@dataclass(frozen=True)
class Case:
    """What determines the speed of a convolution. ``mode``: "training", "attack" (image gradient) or "inference"."""

    batch: int
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int
    mode: str
    threads: int


def worth_measuring(case: Case) -> bool:
    """Whether the Fourier form could be faster: wide kernels, many channels, small maps, more than a few images."""
    side = -(-case.size // case.stride)
    return case.kernel >= 5 and min(case.inputs, case.outputs) >= 16 and side <= LARGEST_SIDE and case.batch >= 8


# Forms used by the current run: from the description of a convolution to "pytorch" or "spectral".
_forms: ContextVar[dict[str, str] | None] = ContextVar("forms", default=None)
FORMS = ("pytorch", "spectral")


@contextlib.contextmanager
def use_forms(forms: dict[str, str]) -> Iterator[None]:
    """Use the given form of each convolution inside the block.

    A convolution that is not listed uses the faster form, which is added to ``forms``.
    """
    token = _forms.set(forms)
    try:
        yield
    finally:
        _forms.reset(token)


def spectral_is_chosen(case: Case) -> bool:
    """Whether a convolution uses the Fourier form: as recorded by :func:`use_forms`, otherwise if it is faster."""
    forms = _forms.get()
    if forms is None:
        return spectral_is_faster(case)
    # Without the number of threads, which may change when a run is resumed.
    layer = f"{case.inputs} to {case.outputs} channels, {case.size} pixels, {case.kernel}x{case.kernel}"
    name = f"{layer}, stride {case.stride}, batch {case.batch}, {case.mode}"
    if name not in forms:
        forms[name] = FORMS[spectral_is_faster(case)]
    return forms[name] == "spectral"


@cache
def spectral_is_faster(case: Case) -> bool:
    """Whether the Fourier form is faster in this case, as timed now or by an earlier process."""
    kept = _folder() / f"{'-'.join(map(str, astuple(case)))}.json"
    seconds = _read(kept)
    if seconds is None:
        with contextlib.suppress(OSError):
            kept.unlink(missing_ok=True)  # damaged
        seconds = time_forms(case)
        with contextlib.suppress(TorchcapsError):  # read-only home: every process times again
            write_json_once(kept, {"case": asdict(case), "seconds": seconds})
        # If another process finished first, use its result in both.
        seconds = _read(kept) or seconds
    return wins(seconds)


def wins(seconds: dict[str, float]) -> bool:
    """Whether the Fourier form was clearly faster."""
    return seconds["spectral"] < REQUIRED_RATIO * seconds["pytorch"]


def time_forms(case: Case) -> dict[str, float]:
    """Median seconds of both forms, timed in turn."""
    generator = torch.Generator().manual_seed(0)  # leaves the global random state alone
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
    with progress_bar("autotuning a convolution (once per layer, then cached)", None):
        for number in range(1 + ROUNDS):
            for form, found in seconds.items():
                spent = run(form)
                if number:  # the first round is a warmup
                    found.append(spent)
    return {form: statistics.median(found) for form, found in seconds.items()}


def measured_cases() -> list[tuple[Case, dict[str, float]]]:
    """Seconds of both forms for every case timed on this kind of machine."""
    found = []
    for path in sorted(_folder().glob("*.json")):
        seconds = _read(path)
        with contextlib.suppress(TorchcapsError, TypeError, KeyError):
            if seconds is not None:
                found.append((Case(**read_json(path)["case"]), seconds))
    return found


def _folder() -> Path:
    """Cache directory of this processor and these versions, because machines of a cluster may share a home."""
    machine = f"{processor_name()} torch {package_version('torch')} fourier {FOURIER_VERSION}"
    return cache_folder() / "convolutions" / file_name(machine)


def _read(kept: Path) -> dict[str, float] | None:
    """Seconds of both forms; None if the file is missing or damaged."""
    if not kept.is_file():
        return None
    try:
        found = read_json(kept)["seconds"]
        return {form: float(found[form]) for form in ("pytorch", "spectral")}
    except (TorchcapsError, TypeError, ValueError, KeyError):
        return None
