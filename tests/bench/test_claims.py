from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchcaps.bench import claims, growth
from torchcaps.bench.checks import Check, ClaimSettings
from torchcaps.bench.growth import (
    Axis,
    draw_growth,
    exponent,
    memory_along_axis,
    routing_alone,
    time_along_axis,
    training_step,
)
from torchcaps.bench.memory import measure_in_process
from torchcaps.bench.timing import TimingBudget
from torchcaps.bench.workload import NetSpec

ONCE = TimingBudget(rounds=1)
MATRIX = NetSpec("matrix-capsnet", "laptop", 1, options={"filters": 4, "types": (2, 2, 2)})
CAPSNET = NetSpec("capsnet", "laptop", 2, options={"filters": 4, "types": 2, "hidden": (8, 8)})


@pytest.mark.parametrize(
    ("check", "target", "met"),
    [
        (Check("a", 8.0, low=8), "at least 8", True),
        (Check("a", 7.9, low=8), "at least 8", False),
        (Check("a", 0.85, high=0.85), "at most 0.85", True),
        (Check("a", 1.2, low=0.9, high=1.1), "0.9 to 1.1", False),
        (Check("a", None, low=8), "at least 8", None),
        (Check("a", 3.0), "reported", None),
    ],
)
def test_whether_a_check_is_met(check: Check, target: str, met: bool | None) -> None:
    assert (check.target, check.met) == (target, met)
    assert check.as_row()["met"] is met


def small_options(name: str) -> dict[str, object]:
    others: dict[str, dict[str, object]] = {"ar-capsnet": {"filters": 4, "types": 2}, "convnet-fc": {"filters": 4}}
    return others.get(name, CAPSNET.options)


def small_net(name: str, **more: Any) -> NetSpec:
    return NetSpec(name, **{"size": "laptop", "options": small_options(name), **more})


@pytest.mark.parametrize("name", ["two-threads", "capsnet", "routings", "child-sizes", "bfloat16"])
def test_a_case_gives_a_figure_for_every_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LARGE", MATRIX)
    monkeypatch.setattr(claims, "CAPSNET", CAPSNET)
    monkeypatch.setattr(claims, "DESK_CAPSNET", CAPSNET)
    monkeypatch.setattr(
        claims,
        "NetSpec",
        lambda name, **more: NetSpec(name, **{"size": "laptop", "options": small_options(name), **more}),
    )
    checks = claims.CASES[name](ClaimSettings(ONCE, shrink=64))
    assert checks
    assert all(check.measured and check.measured > 0 and check.spread for check in checks)


def test_the_case_of_the_gpu_measures_the_routing_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where it compares the CPU's kernels and leaves out the GPU's memory."""
    monkeypatch.setattr(claims, "LARGE", MATRIX)
    monkeypatch.setattr(claims, "CAPSNET", CAPSNET)
    checks = claims.gpu_routing(ClaimSettings(ONCE, shrink=64))
    names = [check.what.partition(", ")[2].partition(":")[0] or "scores" for check in checks]
    assert names == ["scores", "training", "inference"] * 2
    assert all(check.met for check in checks if "score" in check.what)
    assert all(check.measured and check.spread for check in checks if "ours" in check.what)


@pytest.mark.process
def test_the_case_of_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "step_memory", measure_in_process)
    monkeypatch.setattr(claims, "LARGE", MATRIX)
    monkeypatch.setattr(claims, "CAPSNET", CAPSNET)
    monkeypatch.setattr(claims, "ITERATIONS", replace(claims.ITERATIONS, values=(1, 2)))
    checks = claims.linear_scaling(ClaimSettings(ONCE, shrink=64))
    assert [check.target for check in checks] == ["0.9 to 1.1"] * 4 + ["-0.1 to 0.1", "reported", "reported"]
    assert all(check.measured is not None for check in checks)


@pytest.mark.slow
def test_forms_that_are_not_compiled_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LARGE", MATRIX)
    monkeypatch.setattr(claims, "SMALL", MATRIX)
    checks = {check.what: check for check in claims.matrix_capsules(ClaimSettings(ONCE))}
    left_out = checks["310K, step: torch.compile of plain / ours"]
    assert (left_out.measured, left_out.met) == (None, None)
    assert "--compile" in left_out.note
    assert checks["310K, activations: ours / plain"].measured is not None


@pytest.mark.process
def test_growth_along_an_axis(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "step_memory", measure_in_process)  # tests/bench/test_memory.py starts processes
    axis = Axis((1, 2), lambda net, value: replace(net, batch=value))
    times = time_along_axis(MATRIX, axis, training_step, ONCE)
    assert [len(each["points"]) for each in times.values()] == [2, 2]
    alone = time_along_axis(MATRIX, axis, routing_alone, ONCE, ["torchcaps"])
    assert alone["torchcaps"]["points"][0]["median"] < times["torchcaps"]["points"][0]["median"] * 10
    memory = memory_along_axis(CAPSNET, axis, ["plain"])
    assert len(memory["plain"]["peak"]) == 2
    assert set(memory["plain"]["exponents"]) == {"activations", "peak", "process"}
    measured = {"values": [1, 2], "seconds": times, "bytes": memory}
    target = tmp_path / "growth.svg"  # type: ignore[operator]
    draw_growth({"matrix-capsnet": {"batch": measured}}, target)
    first = target.read_bytes()
    draw_growth({"matrix-capsnet": {"batch": measured}}, target)
    assert target.read_bytes() == first, "the same figures give the same file"
    assert b"x^" in first


def test_exponent_of_a_known_power() -> None:
    assert exponent([2, 4, 8], [5 * 2**1.5, 5 * 4**1.5, 5 * 8**1.5]) == pytest.approx(1.5)
