"""Denormals are flushed to zero during training only."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.train.test_resume import make
from torchcaps.train import Callback, MetricRow, fit_run
from torchcaps.train.device import denormals_flushed, flush_denormals

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")


class Looks(Callback):
    def __init__(self) -> None:
        self.flushed: list[bool] = []

    def on_step(self, line: MetricRow) -> None:
        self.flushed.append(denormals_flushed())


def test_a_training_flushes_them(tmp_path: Path) -> None:
    looks = Looks()
    fit_run(make(tmp_path / "run", "capsnet"), callbacks=[looks])
    assert looks.flushed
    assert all(looks.flushed)
    assert not denormals_flushed()


def test_who_flushed_them_before_still_does() -> None:
    with flush_denormals():
        with flush_denormals():
            assert denormals_flushed()
        assert denormals_flushed()
    assert not denormals_flushed()
