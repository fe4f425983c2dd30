"""One line of what ``torchcaps doctor`` has to say."""

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

from torchcaps.bench.forms import cxx_compiler, why_not_compiled
from torchcaps.data import datasets
from torchcaps.data.io.download import data_folders
from torchcaps.data.registry import BY_HAND, GENERATED, HERE, TO_FETCH, dataset_status
from torchcaps.environment import package_version, processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder
from torchcaps.kernels import autotune
from torchcaps.kernels.dispatch import kernel_choice
from torchcaps.models.registry import LAYER
from torchcaps.routing import Routing, routings
from torchcaps.runtime import tune_process
from torchcaps.train.device import check_bfloat16, fastest_device


# MERGED What torchcaps finds around itself: packages, devices, data, room on disk; and the usual troubl
# MERGED What this installation can do, line by line, and what to do about what it cannot.
@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do if that is a problem.

    ``detail`` marks what is for another program alone: a person would not find the rest among so many.
    """

    topic: str
    found: str
    advice: str = ""
    detail: bool = False


MALICIOUS = {"lightning-fabric": ("2.6.2", "2.6.3")}
LITTLE_ROOM = 2e9  # bytes: a dataset and some runs
EXTRA = re.compile(r"""([\w.-]+).*extra == ['"](.+)['"]""")


def find_packages() -> list[Finding]:
    """Versions of what torchcaps needs, and what of its extras is installed, by what the package itself declares."""
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
    advice = f"{bad[0]} is a malicious release: install another at once" if bad else ""
    advice = advice or (f"missing: pip install {' '.join(missing)}" if missing else "")
    found = [Finding("packages", ", ".join(f"{name} {version}" for name, version in versions.items()), advice)]
    for extra, packages in extras.items():
        absent = [name for name in packages if package_version(name) is None]
        state = f"needs {', '.join(absent)}: pip install 'torchcaps[{extra}]'" if absent else "installed"
        found.append(Finding(f"extra {extra}", state))
    return found


def find_devices() -> Iterator[Finding]:
    """Everything that a run could compute on, and a graphics card that this torch cannot use."""
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield Finding(f"device cuda:{number}", f"{about.name}, {about.total_memory / 1e9:.1f} GB")
    if torch.backends.mps.is_available():
        yield Finding("device mps", "Apple's graphics processor")
    if not torch.cuda.is_available() and shutil.which("nvidia-smi"):
        build = torch.version.cuda
        why = f"torch for CUDA {build} sees no card: update the driver" if build else "torch was built without CUDA"
        yield Finding(
            "device cuda", "a driver is installed, but torch sees no card", f"{why}; see pytorch.org/get-started"
        )
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if torch.get_num_threads() > allowed:
        yield Finding(
            "cores allowed",
            f"{allowed}, fewer than threads",
            f"threads wait for each other: set OMP_NUM_THREADS={allowed}",
        )


def find_data() -> list[Finding]:
    """Data folders and which datasets are in them."""
    found = []
    for folder in (path.parent for path in data_folders("any")):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        state = "writable" if os.access(there, os.W_OK) else "not writable"
        advice = "" if state == "writable" else "set TORCHCAPS_DATA to a folder that is"
        found.append(Finding("data folder", f"{folder}, {state}", advice))
    states: dict[str, list[str]] = {}
    for record in datasets:
        states.setdefault(dataset_status(record).state, []).append(record.name)
    remedies = {TO_FETCH: " (torchcaps data get NAME)", BY_HAND: " (torchcaps data get NAME says where to put it)"}
    for state in (HERE, GENERATED, TO_FETCH, BY_HAND):
        if state in states:
            found.append(Finding(f"datasets {state}", ", ".join(states[state]) + remedies.get(state, "")))
    return found


def find_room() -> Iterator[Finding]:
    """Where runs and fetched files go: room on disk, and whether anything may be written there."""
    for topic, folder in (("this folder", Path.cwd()), ("cache folder", cache_folder())):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        advice = "little room: remove old runs, or work on another disk" if free < LITTLE_ROOM else ""
        if not os.access(there, os.W_OK):
            advice = "cannot be written: " + (
                "start torchcaps in a folder of yours" if topic == "this folder" else "set XDG_CACHE_HOME or your home"
            )
        yield Finding(topic, f"{folder}, {free / 1e9:.1f} GB free", advice)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    advice = "" if encoding.startswith("utf") else "tables may look broken: set PYTHONUTF8=1"
    yield Finding("output", f"{sys.stdout.encoding}, {shutil.get_terminal_size().columns} columns", advice)


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
    cases = autotune.measured_cases()
    won = sum(autotune.wins(seconds) for _, seconds in cases)
    so_far = f": {len(cases)} so far, {won} for Fourier transforms (--json lists them)" if cases else ""
    words = f"PyTorch's or Fourier transforms, as a first measurement of each layer says{so_far}"
    found = [Finding("convolutions", words)]
    for case, seconds in cases:
        layer = f"{case.inputs} to {case.outputs} channels, {case.size} pixels, {case.kernel}x{case.kernel}"
        layer += f", stride {case.stride}"
        share = seconds["spectral"] / seconds["pytorch"]
        winner = "Fourier transforms" if autotune.wins(seconds) else "PyTorch's"
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
