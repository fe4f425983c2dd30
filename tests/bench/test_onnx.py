"""The benchmark against onnxruntime."""

from __future__ import annotations

import pytest

from torchcaps.bench import claims as bench
from torchcaps.bench.claims import CASES, ClaimSettings
from torchcaps.bench.timing import TimingBudget
from torchcaps.bench.workload import NetSpec
from torchcaps.models import models

ONCE = ClaimSettings(TimingBudget(rounds=2, seconds=0.0))


def test_both_ratios_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "NETS", [(NetSpec("lenet", "laptop"), (3,))])
    ours, plain = CASES["onnx"](ONCE)
    assert ours.what == "lenet, laptop, 3 images: onnxruntime / ours"
    assert plain.what == "lenet, laptop, 3 images: onnxruntime / plain"
    for check in (ours, plain):
        assert check.measured is not None
        assert 0.001 < check.measured < 1000
        assert check.target == "reported"
        assert check.spread is not None
        assert check.spread["rounds"] == 2


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.errors.find_spec", lambda name: None)
    (check,) = CASES["onnx"](ONCE)
    assert check.measured is None
    assert "pip install -e '.[export]'" in check.note


def test_the_networks_are_there() -> None:
    assert all(net.model in models for net, _ in bench.NETS)
