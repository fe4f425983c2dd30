"""Checks on Linux for code that would break on Windows or macOS."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.files import file_name

SOURCE = Path(__file__).parents[1] / "src" / "torchcaps"
# Takes away what Windows does not have, then imports every module.
WINDOWS = """
import os, pkgutil, signal, sys, importlib
import torch, lightning_fabric, numba, matplotlib.figure, PIL.Image, typer, rich.console, pydantic
import torch.distributed.fsdp
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
for name in ("fork", "sysconf", "sched_getaffinity", "getuid", "geteuid", "mkfifo", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM"):
    delattr(signal, name)
import torchcaps
for each in pkgutil.walk_packages(torchcaps.__path__, "torchcaps."):
    if not each.name.startswith("torchcaps.kernels.triton_"):  # Triton exists for Linux only
        importlib.import_module(each.name)
from torchcaps.doctor import check_devices
from torchcaps.train.processes import stop_requests
with stop_requests() as stop:
    assert not stop()
list(check_devices())
print("all imported")
"""


def test_every_module_can_be_imported_without_what_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, check=False, timeout=120)
    assert "all imported" in done.stdout, done.stderr[-2000:]


def test_no_file_of_ours_has_a_name_that_some_system_refuses() -> None:
    names = [path.relative_to(SOURCE.parents[1]).as_posix() for path in SOURCE.rglob("*")]
    assert not [name for name in names if re.search(r'[<>:"|?*\\]', name)]
    assert len({name.lower() for name in names}) == len(names), "two names that differ in case alone"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("images:C:\\pets\\,size=48", "images-C-pets-size-48"),
        ("capsnet:routing=em", "capsnet-routing-em"),
        ("mnist", "mnist"),
        ("äß", "unnamed"),
    ],
)
def test_names_from_texts(text: str, name: str) -> None:
    assert file_name(text) == name


def test_text_files_are_opened_with_an_encoding() -> None:
    """Windows has another default than UTF-8."""
    pattern = re.compile(r"\.(?:read_text|write_text)\((?![^\n]*encoding)")
    lines = [
        f"{path.name}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if pattern.search(line)
    ]
    assert lines == []
