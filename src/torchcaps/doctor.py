"""Checks of ``torchcaps doctor``: packages, devices, kernels, datasets, disk space, and advice about problems."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from torchcaps.bench.workload import cxx_compiler, why_not_compiled
from torchcaps.data import datasets
from torchcaps.data.io.download import data_folders
from torchcaps.data.registry import BY_HAND, GENERATED, HERE, TO_FETCH, dataset_status
from torchcaps.environment import package_version, processor_name
from torchcaps.errors import TorchcapsError, install_command
from torchcaps.files import cache_folder
from torchcaps.kernels import autotune
from torchcaps.kernels.dispatch import kernel_choice, triton_supports
from torchcaps.models.registry import LAYER
from torchcaps.routing import Routing, routings
from torchcaps.runtime import tune_process
from torchcaps.train.device import check_bfloat16, fastest_device


@dataclass(frozen=True)
class Diagnosis:
    """What was checked, what was found, and what to do if that is a problem.

    ``detail`` marks entries that only the JSON output has.
    """

    topic: str
    found: str
    advice: str = ""
    detail: bool = False


MALICIOUS = {"lightning-fabric": ("2.6.2", "2.6.3")}
LOW_DISK_SPACE = 2e9  # bytes: a dataset and some runs
EXTRA = re.compile(r"""([\w.-]+).*extra == ['"](.+)['"]""")


def check_packages() -> list[Diagnosis]:
    """Versions of the dependencies, and which extras are installed, as declared by the package's metadata."""
    needed, extras = list[str](), dict[str, list[str]]()
    for text in metadata.requires("torchcaps") or []:
        declared = EXTRA.match(text)
        if not declared:
            needed.append(re.split(r"[^\w.-]", text, maxsplit=1)[0])
        elif declared[2] != "dev":
            extras.setdefault(declared[2], []).append(declared[1])
    versions = {name: package_version(name) for name in sorted(needed) if name != "torch"}
    bad = [f"{name} {version}" for name, version in versions.items() if version in MALICIOUS.get(name, ())]
    missing = [name for name, version in versions.items() if version is None]
    advice = f"{bad[0]} is a malicious release: install another version now" if bad else ""
    advice = advice or (f"missing: pip install {' '.join(missing)}" if missing else "")
    found = [Diagnosis("packages", ", ".join(f"{name} {version}" for name, version in versions.items()), advice)]
    for extra, packages in extras.items():
        absent = [name for name in packages if package_version(name) is None]
        state = f"needs {', '.join(absent)}: {install_command(extra)}" if absent else "installed"
        found.append(Diagnosis(f"extra {extra}", state))
    return found


def check_devices() -> Iterator[Diagnosis]:
    """Devices that a run could use, and a GPU that this torch cannot use."""
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield Diagnosis(f"device cuda:{number}", f"{about.name}, {about.total_memory / 1e9:.1f} GB")
    if torch.backends.mps.is_available():
        yield Diagnosis("device mps", "Apple GPU")
    if not torch.cuda.is_available() and shutil.which("nvidia-smi"):
        build = torch.version.cuda
        why = f"torch for CUDA {build} finds no GPU: update the driver" if build else "torch was built without CUDA"
        yield Diagnosis(
            "device cuda", "a driver is installed, but torch finds no GPU", f"{why}; see pytorch.org/get-started"
        )
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if torch.get_num_threads() > allowed:
        yield Diagnosis(
            "usable cores",
            f"{allowed}, fewer than threads",
            f"threads compete for cores: set OMP_NUM_THREADS={allowed}",
        )


def check_datasets() -> list[Diagnosis]:
    """Data folders and the datasets in them."""
    found = []
    for folder in (path.parent for path in data_folders("any")):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        state = "writable" if os.access(there, os.W_OK) else "not writable"
        advice = "" if state == "writable" else "set TORCHCAPS_DATA to a writable folder"
        found.append(Diagnosis("data folder", f"{folder}, {state}", advice))
    states: dict[str, list[str]] = {}
    for record in datasets:
        states.setdefault(dataset_status(record).state, []).append(record.name)
    remedies = {TO_FETCH: " (torchcaps data get NAME)", BY_HAND: " (torchcaps data get NAME says where to put it)"}
    for state in (HERE, GENERATED, TO_FETCH, BY_HAND):
        if state in states:
            found.append(Diagnosis(f"datasets {state}", ", ".join(states[state]) + remedies.get(state, "")))
    return found


def check_disk() -> Iterator[Diagnosis]:
    """Free space and permissions of the folders for runs and downloads; and the terminal's encoding."""
    for topic, folder in (("current folder", Path.cwd()), ("cache folder", cache_folder())):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        advice = "little disk space: delete old runs or use another disk" if free < LOW_DISK_SPACE else ""
        if not os.access(there, os.W_OK):
            advice = "not writable: " + (
                "run torchcaps in a folder that you own"
                if topic == "current folder"
                else "set XDG_CACHE_HOME to a writable folder"
            )
        yield Diagnosis(topic, f"{folder}, {free / 1e9:.1f} GB free", advice)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    advice = "" if encoding.startswith("utf") else "tables may be garbled: set PYTHONUTF8=1"
    yield Diagnosis("output", f"{sys.stdout.encoding}, {shutil.get_terminal_size().columns} columns", advice)


def diagnose() -> list[Diagnosis]:
    """All checks of this installation and machine."""
    inside = [*_machine(), *_settings(), *_kernels(), *_routings(), *_convolutions()]
    return [*inside, *check_devices(), *check_packages(), *check_datasets(), *check_disk()]


def _machine() -> list[Diagnosis]:
    count = os.cpu_count() or 1
    own = torch.get_num_threads()
    few = f"only {own} of {count} cores are used: unset OMP_NUM_THREADS" if own < count else ""
    missing = why_not_compiled()
    return [
        Diagnosis("system", platform.platform()),
        Diagnosis("Python", platform.python_version()),
        Diagnosis("torch", torch.__version__),
        Diagnosis("torchcaps", str(package_version("torchcaps"))),
        Diagnosis("processor", f"{processor_name()}, {count} cores, {torch.backends.cpu.get_cpu_capability()}"),
        Diagnosis("device", fastest_device()),
        Diagnosis("threads", str(own), few),
        _memory(),
        Diagnosis("C++ compiler", cxx_compiler() or "none", f"torch.compile cannot run: {missing}" if missing else ""),
        _bfloat16(),
    ]


def _memory() -> Diagnosis:
    try:
        page, free, whole = (os.sysconf(name) for name in ("SC_PAGE_SIZE", "SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):  # not Linux
        return Diagnosis("memory", "not reported by this system")
    low = "paper-size networks need more: use --size laptop or a smaller batch" if page * free < 2e9 else ""
    return Diagnosis("memory", f"{page * whole / 1e9:.1f} GB, {page * free / 1e9:.1f} GB free", low)


def _bfloat16() -> Diagnosis:
    try:
        check_bfloat16()
    except TorchcapsError as error:
        return Diagnosis("bfloat16 on CPU", "not usable", str(error))
    return Diagnosis("bfloat16 on CPU", "usable")


def _settings() -> list[Diagnosis]:
    names = ("TORCHCAPS_KERNELS", "TORCHCAPS_MALLOC", "TORCHCAPS_DATA")
    advice = {"TORCHCAPS_KERNELS": _selected_kernels()[1]}
    found = [Diagnosis(name, os.environ.get(name, "not set"), advice.get(name, "")) for name in names]
    if tune_process():
        return [*found, Diagnosis("allocator", "tuned to keep freed memory")]
    disabled = os.environ.get("TORCHCAPS_MALLOC") == "0"
    reason = "unset TORCHCAPS_MALLOC" if disabled else "only glibc can be tuned: large tensors are slower elsewhere"
    return [*found, Diagnosis("allocator", "system default", reason)]


def _selected_kernels() -> tuple[str, str]:
    """The kernels that the environment selects, and what is wrong with the setting."""
    try:
        return kernel_choice(), ""
    except TorchcapsError as error:
        return "unknown", str(error)


def _kernels() -> list[Diagnosis]:
    if find_spec("numba") is None:
        return [Diagnosis("numba", "not installed", "fused routings need it: pip install numba")]
    from torchcaps.kernels import dynamic_loops, em_loops, fourier_loops

    found = [Diagnosis("numba", str(package_version("numba")))]
    loops = {"EM routing": em_loops, "dynamic routing": dynamic_loops, "Fourier convolution": fourier_loops}
    for title, module in loops.items():
        source = Path(str(module.__file__))
        compiled = next(value for value in vars(module).values() if hasattr(value, "stats"))
        folder = Path(compiled.stats.cache_path)
        kept = [index.stat().st_mtime for index in folder.glob(f"{source.stem}.*.nbi")]
        ready = kept and max(kept) >= source.stat().st_mtime
        state = "compiled and cached" if ready else "not compiled yet, the first use takes a few seconds"
        found.append(Diagnosis(f"{title} kernels", f"{state}; in {folder}"))
    return found


def _routings() -> list[Diagnosis]:
    """Which kernels each routing uses, and why."""
    device = fastest_device()
    found = []
    for record in routings:
        fused = type(record.build(LAYER)).route_factors is not Routing.route_factors
        found.append(Diagnosis(f"routing {record.name}", _routing_kernel(fused, device)))
    return found


def _convolutions() -> list[Diagnosis]:
    """Which convolution is used, and what was measured for the layers used so far."""
    choice = _selected_kernels()[0]
    if choice == "plain" or fastest_device() != "cpu":
        return [Diagnosis("convolutions", f"PyTorch: {'forced' if choice == 'plain' else 'others are for the CPU'}")]
    cases = autotune.measured_cases()
    won = sum(autotune.wins(seconds) for _, seconds in cases)
    so_far = f": {len(cases)} measured so far, others won {won} (--json lists them)" if cases else ""
    found = [Diagnosis("convolutions", f"PyTorch, FFT or Winograd, whichever is faster for a layer{so_far}")]
    for case, seconds in cases:
        layer = f"{case.inputs} to {case.outputs} channels, {case.size} pixels, {case.kernel}x{case.kernel}"
        layer += f", stride {case.stride}"
        winner = {"spectral": "FFT", "winograd": "Winograd"}[case.form] if autotune.wins(seconds) else "PyTorch"
        share = autotune.ratio_to_pytorch(seconds)
        about = f"{case.mode} of {case.batch}, threads {case.threads}: {winner} (ratio {share:.2f})"
        found.append(Diagnosis(layer, about, detail=True))
    return found


def _routing_kernel(fused: bool, device: str) -> str:
    if not fused:
        return "plain: matrix products only"
    if _selected_kernels()[0] == "plain":
        return "plain: forced"
    limits = "plain in float64, with torch.compile and for second derivatives"
    if device == "cuda":
        if find_spec("triton") is None:
            return f"plain: Triton is not installed: {install_command('gpu')}"
        if not triton_supports(torch.device(device)):
            return "plain: Triton needs a GPU of compute capability 7.0 or newer"
        return f"fused on the GPU by Triton; {limits}"
    if device != "cpu":
        return f"plain: fused kernels are for CPUs and for CUDA, and the device is {device}"
    if find_spec("numba") is None:
        return "plain: numba is not installed"
    return f"fused; {limits}"
