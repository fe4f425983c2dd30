"""The environment of a run: versions, commit, command, processor and memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torchcaps", "torch", "numpy", "lightning-fabric", "safetensors")


def describe_environment() -> dict[str, Any]:
    """Describe where a result comes from: command, commit, versions and hardware."""
    import torch

    return {
        "command": " ".join([Path(sys.argv[0]).name, *map(without_folders, sys.argv[1:])]),
        "commit": source_commit(),
        "versions": {"python": platform.python_version(), **{name: package_version(name) for name in PACKAGES}},
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def without_folders(argument: str) -> str:
    """Shorten an absolute path to its last part, so that a published result names no folder of this machine.

    >>> without_folders("/home/somebody/runs/first"), without_folders("runs/first"), without_folders("--epochs=2")
    ('first', 'runs/first', '--epochs=2')
    """
    return Path(argument).name if Path(argument).is_absolute() else argument


def package_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def source_commit() -> str | None:
    """Return the commit of the running source tree, with "+" if it has changes; None for an installed wheel."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        tracked = _git(folder, "ls-files", "--", "__init__.py")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}{'+' if changed else ''}" if tracked else None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def processor_name() -> str:
    """Return the model name of the processor where the system provides it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: fall back to the platform module
    return platform.processor() or platform.machine()


def machine_memory() -> int:
    """Return the physical memory in bytes; ``sys.maxsize`` where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return sys.maxsize
