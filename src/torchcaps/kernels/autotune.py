"""Autotuning of convolutions: time PyTorch's and another form once per layer and batch size, and cache the result.

The other form is Winograd's for 3x3 kernels and the Fourier form for wide ones. Timings are stored in the user's cache
directory. The two forms round differently, so a resumed run must use the same
forms as before to end with the same weights: they are saved with the run, and ``use_forms`` restores them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
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
from torchcaps.kernels.winograd import LANES, winograd_convolution
from torchcaps.progress import progress_bar

VERSION = 7  # of the forms: increased when their speed or the way of timing changes, so that they are timed again
ROUNDS = 3
MOST_ROUNDS = 12  # if the forms are about equally fast, or seem to be because something else disturbs the timing
CLOSE = (0.75, 1.2)  # ratios that are timed longer
# Timed alone, with warm caches, our forms look slightly better than they are within a model.
REQUIRED_RATIO = 0.85
SMALLEST_STEP = 5  # pixels of output per side that a tile of the Fourier form must give
FEWEST_TILES = 256  # of Winograd's form: with fewer, transforming the kernels takes too long


@dataclass(frozen=True)
class Case:
    """What determines the speed of a convolution.

    Args:
        mode: "training", "attack" (image gradient) or "inference".
        form: the alternative to PyTorch's: "spectral", without padding, or "winograd".
        padding: of Winograd's form, 0 or 1.
    """

    batch: int
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int
    mode: str
    threads: int
    form: str = "spectral"
    padding: int = 0


def worth_measuring(case: Case) -> bool:
    """Whether the other form is possible and could be faster.

    The Fourier form could with wide kernels, many channels and more than a few images; Winograd's with 3x3 kernels of
    stride 1, many channels, and more than a few tiles of 4x4 pixels.
    """
    if case.form == "winograd":
        tiles = case.batch * (-(-(case.size + 2 * case.padding - 2) // 4)) ** 2
        fits = not case.inputs % LANES and not case.outputs % LANES
        return case.kernel == 3 and case.stride == 1 and fits and tiles >= FEWEST_TILES
    side, reach = -(-case.size // case.stride), -(-case.kernel // case.stride)
    fits = side <= LARGEST_SIDE or reach <= LARGEST_SIDE - SMALLEST_STEP + 1
    return case.kernel >= 5 and min(case.inputs, case.outputs) >= 16 and fits and case.batch >= 8


# Forms used by the current run: from the description of a convolution to one of FORMS.
_forms: ContextVar[dict[str, str] | None] = ContextVar("forms", default=None)
FORMS = ("pytorch", "spectral", "winograd")


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


def form_is_chosen(case: Case) -> bool:
    """Whether a convolution uses the case's form: as recorded by :func:`use_forms`, otherwise if it is faster."""
    forms = _forms.get()
    if forms is None:
        return form_is_faster(case)
    # Without the number of threads, which may change when a run is resumed.
    layer = f"{case.inputs} to {case.outputs} channels, {case.size} pixels, {case.kernel}x{case.kernel}"
    name = f"{layer}, stride {case.stride}, batch {case.batch}, {case.mode}"
    if case.form == "winograd" and not case.padding:
        name += ", no padding"
    if name not in forms:
        forms[name] = case.form if form_is_faster(case) else "pytorch"
    return forms[name] == case.form


@cache
def form_is_faster(case: Case) -> bool:
    """Whether the case's form is faster than PyTorch's, as timed now or by an earlier process."""
    kept = _folder() / f"{'-'.join(map(str, astuple(case)))}.json"
    seconds = _read(kept, case.form)
    if seconds is None:
        with contextlib.suppress(OSError):
            kept.unlink(missing_ok=True)  # damaged
        seconds = time_forms(case)
        with contextlib.suppress(TorchcapsError):  # read-only home: every process times again
            write_json_once(kept, {"case": asdict(case), "seconds": seconds})
        # If another process finished first, use its result in both.
        seconds = _read(kept, case.form) or seconds
    return wins(seconds)


def wins(seconds: dict[str, float]) -> bool:
    """Whether the other form was clearly faster than PyTorch's."""
    return ratio_to_pytorch(seconds) < REQUIRED_RATIO


def ratio_to_pytorch(seconds: dict[str, float]) -> float:
    """Seconds of the other form divided by those of PyTorch's.

    >>> ratio_to_pytorch({"pytorch": 2.0, "winograd": 1.0})
    0.5
    """
    (form,) = seconds.keys() - {"pytorch"}
    return seconds[form] / seconds["pytorch"]


def time_forms(case: Case) -> dict[str, float]:
    """Least seconds of both forms, timed in turn.

    On one thread this is CPU time, which excludes the time that other programs keep the core.
    """
    clock = time.thread_time if case.threads == 1 else time.perf_counter
    generator = torch.Generator().manual_seed(0)  # leaves the global random state alone
    shape = (case.batch, case.inputs, case.size, case.size)
    images = torch.rand(shape, generator=generator).contiguous(memory_format=torch.channels_last)
    kernels = torch.rand(case.outputs, case.inputs, case.kernel, case.kernel, generator=generator) - 0.5
    weight = kernels.contiguous(memory_format=torch.channels_last)
    images.requires_grad_(case.mode != "inference")
    weight.requires_grad_(case.mode == "training")

    def run(form: str) -> float:
        began = clock()
        with torch.set_grad_enabled(case.mode != "inference"):
            made: Tensor
            if form == "spectral":
                made = spectral_convolution(images, weight, case.stride)
            elif form == "winograd":
                made = winograd_convolution(images, weight, None, case.padding)
            else:
                made = F.conv2d(images, weight, stride=case.stride, padding=case.padding)
            if made.requires_grad:
                made.backward(torch.ones_like(made))
        return clock() - began

    with progress_bar("autotuning a convolution (once per layer, then cached)", None):
        return least_seconds(run, case.form)


def least_seconds(run: Callable[[str], float], form: str) -> dict[str, float]:
    """Least seconds of PyTorch's and of another form over alternating rounds; a close result is timed longer.

    Other programs take caches and memory bandwidth even from CPU time, and one form may lose more by it. They only ever
    add time, so the least is the best estimate.
    """
    seconds = {"pytorch": float("inf"), form: float("inf")}
    for number in range(1 + MOST_ROUNDS):
        for each in seconds:
            spent = run(each)
            if number:  # the first round is a warmup
                seconds[each] = min(seconds[each], spent)
        if number >= ROUNDS and not CLOSE[0] < ratio_to_pytorch(seconds) < CLOSE[1]:
            break
    return seconds


def measured_cases() -> list[tuple[Case, dict[str, float]]]:
    """Seconds of both forms for every case timed on this kind of machine."""
    found = []
    for path in sorted(_folder().glob("*.json")):
        with contextlib.suppress(TorchcapsError, TypeError, KeyError):
            case = Case(**read_json(path)["case"])
            seconds = _read(path, case.form)
            if seconds is not None:
                found.append((case, seconds))
    return found


def _folder() -> Path:
    """Cache directory of this processor and these versions, because machines of a cluster may share a home."""
    machine = f"{processor_name()} torch {package_version('torch')} forms {VERSION}"
    return cache_folder() / "convolutions" / file_name(machine)


def _read(kept: Path, form: str) -> dict[str, float] | None:
    """Seconds of PyTorch's form and of this one; None if the file is missing or damaged."""
    if not kept.is_file():
        return None
    try:
        found = read_json(kept)["seconds"]
        return {each: float(found[each]) for each in ("pytorch", form)}
    except (TorchcapsError, TypeError, ValueError, KeyError):
        return None
