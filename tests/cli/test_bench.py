"""torchcaps bench and torchcaps doctor, run in this process to avoid importing torch again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchcaps.bench import steps
from torchcaps.cli.main import main

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command in an empty directory and return its output; it must succeed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 0
        return capsys.readouterr().out

    return call


def test_step_writes_a_result_with_all_forms(run: Run, tmp_path: Path) -> None:
    flags = ("--size", "laptop", "--batch", "2", "--threads", "1", "--rounds", "2", "--out", "measured")
    printed = run("bench", "step", "--models", "lenet,capsnet-nor", *flags)
    result = json.loads((tmp_path / "measured" / "step.json").read_text())
    assert [(row["model"], row["task"]) for row in result["rows"]] == [
        ("lenet", "training"),
        ("lenet", "inference"),
        ("capsnet-nor", "training"),
        ("capsnet-nor", "inference"),
    ]
    assert list(result["rows"][2]["seconds"]) == ["convolutions", "plain", "straightforward", "torchcaps"]
    assert result["rows"][0]["seconds"]["plain"]["rounds"] == 2
    assert result["environment"]["processor"]
    assert "lenet" in printed


def test_memory_writes_a_result(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "forms_for", lambda net, compiled: ["plain"])  # a process for each form is slow
    run("bench", "memory", "--models", "lenet", "--size", "laptop", "--batch", "2", "--out", ".")
    (row,) = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert row["bytes"]["plain"]["peak"] > 0


def test_doctor_reports_the_installation(run: Run) -> None:
    findings = {each["topic"]: each for each in json.loads(run("doctor", "--json"))}
    assert findings["routing em"]["found"].startswith("fused")
    assert findings["routing trainable"]["found"].startswith("plain")
    assert findings["torch"]["found"]
    assert findings["convolutions"]["found"]


def test_doctor_gives_advice_and_never_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_KERNELS", "plane")
    monkeypatch.setenv("TORCHCAPS_MALLOC", "0")
    findings = {each["topic"]: each for each in json.loads(run("doctor", "--json"))}
    assert "did you mean 'plain'?" in findings["TORCHCAPS_KERNELS"]["advice"]
    assert findings["allocator"]["advice"] == "unset TORCHCAPS_MALLOC"
    assert "see the last column" in run("doctor")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["step", "--models", "capsnett"], "model 'capsnett' is unknown: did you mean 'capsnet'?"),
        (["step", "--size", "huge"], "size 'huge' is unknown"),
        (["step", "--threads", "0"], "--threads should be a comma-separated list of whole numbers above 0"),
        (["claims", "capsnets"], "case 'capsnets' is unknown: did you mean 'capsnet'?"),
        (["claims", "--device", "gpu"], "--device should be 'cpu', 'cuda' or a GPU such as 'cuda:1'; got 'gpu'"),
        (["claims", "--device", "cuda:99"], "--device 'cuda:99' cannot be used: torch finds"),
        (["growth", "--models", "lenet"], "model with growth axes 'lenet' is unknown"),
        (["dta"], "No such command 'dta'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchcaps", "bench", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
