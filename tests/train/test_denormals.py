"""Numbers too small to be normal are zero during a training, and as before after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.train.test_resume import make
from torchcaps.train import Callback, Line, fit
from torchcaps.train.device import are_flushed, flushed_denormals

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")


class Looks(Callback):
    def __init__(self) -> None:
        self.flushed: list[bool] = []

    def on_step(self, line: Line) -> None:
        self.flushed.append(are_flushed())


def test_a_training_flushes_them(tmp_path: Path) -> None:
    looks = Looks()
    fit(make(tmp_path / "run", "capsnet"), callbacks=[looks])
    assert looks.flushed
    assert all(looks.flushed)
    assert not are_flushed()


def test_who_flushed_them_before_still_does() -> None:
    with flushed_denormals():
        with flushed_denormals():
            assert are_flushed()
        assert are_flushed()
    assert not are_flushed()
