"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Some virtual machines claim bfloat16 matrix instructions that they do not carry out; set before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch

# Tests run side by side, one process a core: each keeps to one thread.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

Command = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run the installed command."""
    for item in items:
        if "torchcaps_command" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.process)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def torchcaps_command(tmp_path: Path) -> Command:
    """Run the installed command as a user would, in an empty folder."""

    def run(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("torchcaps")), *arguments]
        environment = os.environ | {"COLUMNS": "200"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment, check=False, **settings
        )

    return run
