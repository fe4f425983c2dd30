"""Compilation has no side effects on the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torchcaps

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


MASK = """
import numpy as np
from torchcaps.kernels.dropout_loops import mask_elements

values = np.ones(4, np.float32)
seed = np.uint32(1)
mask_elements(values, values, seed, seed, np.uint32(0), np.float32(1), 0, 4)
print(sum(mask_elements.stats.cache_hits.values()))
"""


@pytest.mark.process
def test_kernels_are_compiled_again_if_a_file_that_they_import_has_changed(tmp_path: Path) -> None:
    """numba compares the function's own file only, and would run the old code after an update."""
    package = shutil.copytree(
        Path(torchcaps.__file__).parent, tmp_path / "torchcaps", ignore=shutil.ignore_patterns("__pycache__", "weights")
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def cache_hits() -> int:
        ended = subprocess.run(
            [sys.executable, "-c", MASK], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return int(ended.stdout)

    assert [cache_hits(), cache_hits()] == [0, 1]
    with (package / "kernels" / "simd.py").open("a") as file:
        file.write("# changed\n")
    assert cache_hits() == 0
