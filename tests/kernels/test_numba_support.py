"""Compilation has no side effects on the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import sys, types

class Watched(types.ModuleType):
    def __setattr__(self, name, value):
        assert name != "stdout", "sys.stdout was replaced"
        super().__setattr__(name, value)

sys.__class__ = Watched

import torch, torchcaps

model = torchcaps.create_model("capsnet", size="laptop", image_size=28, channels=1, classes=10)
model(torch.rand(1, 1, 28, 28))
print("compiled")
"""


@pytest.mark.process
def test_compilation_does_not_replace_standard_output(tmp_path: Path) -> None:
    """Otherwise output of another thread, or of a test that runs beside a service, would be diverted."""
    pytest.importorskip("colorama")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", None)
    ended = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "compiled\n"), ended.stderr
