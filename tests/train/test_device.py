"""Denormals are flushed to zero during training only, in all threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.train.test_resume import make
from torchcaps.kernels.dispatch import on_threads
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


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


DENORMAL = torch.full((1_000_000,), 1e-39)  # large enough that PyTorch divides it among its threads


def test_threads_of_pytorch_that_exist_already_flush_them_too(two_threads: None) -> None:
    def flushed() -> float:
        return ((DENORMAL * 1.0).view(torch.int32) == 0).float().mean().item()

    assert flushed() == 0  # starts the threads
    with flush_denormals():
        assert flushed() == 1
    assert flushed() == 0


def test_threads_of_the_kernels_that_exist_already_flush_them_too(two_threads: None) -> None:
    def flushed() -> list[bool]:
        return on_threads(lambda first, last: denormals_flushed(), 2)

    assert flushed() == [False, False]  # starts the threads
    with flush_denormals():
        assert flushed() == [True, True]
    assert flushed() == [False, False]
