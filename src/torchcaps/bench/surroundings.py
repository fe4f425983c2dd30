"""What torchcaps finds around itself: packages, devices, data, room on disk; and the usual trouble with them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from torchcaps.bench.finding import Finding
from torchcaps.data import datasets
from torchcaps.data.inventory import BY_HAND, GENERATED, HERE, TO_FETCH, take_stock
from torchcaps.data.verified import data_folders
from torchcaps.environment import package_version
from torchcaps.files import cache_folder

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
        states.setdefault(take_stock(record).state, []).append(record.name)
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
