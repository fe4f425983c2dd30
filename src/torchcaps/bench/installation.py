"""What this installation can do, line by line, and what to do about what it cannot."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path

import torch

from torchcaps.bench.finding import Finding
from torchcaps.bench.forms import cxx_compiler, why_not_compiled
from torchcaps.bench.surroundings import find_data, find_devices, find_packages, find_room
from torchcaps.environment import package_version, processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.kernels import measured
from torchcaps.kernels.choice import kernel_choice
from torchcaps.models.table import LAYER
from torchcaps.routing import Routing, routings
from torchcaps.runtime import tune_process
from torchcaps.train.device import check_bfloat16, fastest_device


def examine() -> list[Finding]:
    """All findings about this installation and machine."""
    inside = [*_machine(), *_settings(), *_kernels(), *_forms(), *_convolutions()]
    return [*inside, *find_devices(), *find_packages(), *find_data(), *find_room()]


def _machine() -> list[Finding]:
    count = os.cpu_count() or 1
    own = torch.get_num_threads()
    few = f"only {own} of {count} cores are used: unset OMP_NUM_THREADS" if own < count else ""
    missing = why_not_compiled()
    return [
        Finding("system", platform.platform()),
        Finding("Python", platform.python_version()),
        Finding("torch", torch.__version__),
        Finding("torchcaps", str(package_version("torchcaps"))),
        Finding("processor", f"{processor_name()}, {count} cores, {torch.backends.cpu.get_cpu_capability()}"),
        Finding("device", fastest_device()),
        Finding("threads", str(own), few),
        _memory(),
        Finding("C++ compiler", cxx_compiler() or "none", f"torch.compile cannot run: {missing}" if missing else ""),
        _bfloat16(),
    ]


def _memory() -> Finding:
    try:
        page, free, whole = (os.sysconf(name) for name in ("SC_PAGE_SIZE", "SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):  # not Linux
        return Finding("memory", "this system does not tell")
    low = "networks of paper size need more: use --size laptop or a smaller batch" if page * free < 2e9 else ""
    return Finding("memory", f"{page * whole / 1e9:.1f} GB, {page * free / 1e9:.1f} GB free", low)


def _bfloat16() -> Finding:
    try:
        check_bfloat16()
    except TorchcapsError as error:
        return Finding("bfloat16 on the CPU", "not usable", str(error))
    return Finding("bfloat16 on the CPU", "usable")


def _settings() -> list[Finding]:
    names = ("TORCHCAPS_KERNELS", "TORCHCAPS_MALLOC", "TORCHCAPS_DATA")
    advice = {"TORCHCAPS_KERNELS": _asked_kernels()[1]}
    found = [Finding(name, os.environ.get(name, "not set"), advice.get(name, "")) for name in names]
    if tune_process():
        return [*found, Finding("allocator", "tuned: freed memory is kept")]
    told = os.environ.get("TORCHCAPS_MALLOC") == "0"
    reason = "unset TORCHCAPS_MALLOC" if told else "only glibc can be tuned: large tensors cost more time elsewhere"
    return [*found, Finding("allocator", "as the system has it", reason)]


def _asked_kernels() -> tuple[str, str]:
    """The choice of kernels, and what is wrong with it."""
    try:
        return kernel_choice(), ""
    except TorchcapsError as error:
        return "nothing that is known", str(error)


def _kernels() -> list[Finding]:
    if find_spec("numba") is None:
        return [Finding("numba", "not installed", "fused routings need it: pip install numba")]
    from torchcaps.kernels import dynamic_loops, em_loops

    found = [Finding("numba", str(package_version("numba")))]
    for title, module in (("EM", em_loops), ("dynamic", dynamic_loops)):
        source = Path(str(module.__file__))
        compiled = next(value for value in vars(module).values() if hasattr(value, "stats"))
        folder = Path(compiled.stats.cache_path)
        kept = [index.stat().st_mtime for index in folder.glob(f"{source.stem}.*.nbi")]
        ready = kept and max(kept) >= source.stat().st_mtime
        state = "compiled and kept" if ready else "not compiled yet, the first use takes some seconds"
        found.append(Finding(f"kernels of {title} routing", f"{state}; in {folder}"))
    return found


def _forms() -> list[Finding]:
    """Which form of each routing runs, and why."""
    device = fastest_device()
    found = []
    for record in routings:
        fused = type(record.build(LAYER)).route_factors is not Routing.route_factors
        found.append(Finding(f"routing {record.name}", _form(fused, device)))
    return found


def _convolutions() -> list[Finding]:
    """Which form of a convolution runs, and what was measured for the layers that were used so far."""
    choice = _asked_kernels()[0]
    if choice == "plain" or fastest_device() != "cpu":
        return [Finding("convolutions", f"PyTorch's: {'forced' if choice == 'plain' else 'others are for the CPU'}")]
    cases = measured.measured_cases()
    won = sum(measured.wins(seconds) for _, seconds in cases)
    so_far = f": {len(cases)} so far, {won} for Fourier transforms (--json lists them)" if cases else ""
    words = f"PyTorch's or Fourier transforms, as a first measurement of each layer says{so_far}"
    found = [Finding("convolutions", words)]
    for case, seconds in cases:
        layer = f"{case.inputs} to {case.outputs} channels, {case.size} pixels, {case.kernel}x{case.kernel}"
        layer += f", stride {case.stride}"
        share = seconds["spectral"] / seconds["pytorch"]
        winner = "Fourier transforms" if measured.wins(seconds) else "PyTorch's"
        about = f"{case.mode} of {case.batch}, threads {case.threads}: {winner} (ratio {share:.2f})"
        found.append(Finding(layer, about, detail=True))
    return found


def _form(fused: bool, device: str) -> str:
    if not fused:
        return "plain: matrix products, its only form"
    if _asked_kernels()[0] == "plain":
        return "plain: forced"
    if find_spec("numba") is None:
        return "plain: numba is not installed"
    if device != "cpu":
        return f"plain: the fused form is for the CPU, and the device is {device}"
    return "fused; plain in float64, under torch.compile and for second derivatives"
