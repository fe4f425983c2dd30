"""torchcaps bench and torchcaps doctor, run as a user runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Command
from torchcaps.cli.main import main


def test_step_writes_a_result_with_all_forms(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command(
        "bench", "step", "--models", "lenet,capsnet-nor", "--size", "laptop", "--batch", "2", "--threads", "1",
        "--rounds", "2", "--out", "measured",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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
    assert "capsnet-nor, laptop" in done.stdout


def test_memory_writes_a_result(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command("bench", "memory", "--models", "lenet", "--size", "laptop", "--batch", "2", "--out", ".")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert set(row["bytes"]) == {"torchcaps", "plain", "convolutions"}


def test_doctor_finds_out_and_never_fails(torchcaps_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = {each["topic"]: each for each in json.loads(torchcaps_command("doctor", "--json").stdout)}
    assert findings["routing em"]["found"].startswith("fused")
    assert findings["routing uniform"]["found"].startswith("plain")
    assert findings["torch"]["found"]
    assert findings["convolutions"]["found"]
    monkeypatch.setenv("TORCHCAPS_KERNELS", "plane")
    monkeypatch.setenv("TORCHCAPS_MALLOC", "0")
    done = torchcaps_command("doctor")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "did you mean 'plain'?" in words
    assert "unset TORCHCAPS_MALLOC" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["step", "--models", "capsnett"], "model 'capsnett' is unknown: did you mean 'capsnet'?"),
        (["step", "--size", "huge"], "size 'huge' is unknown"),
        (["step", "--threads", "0"], "--threads takes whole numbers above 0"),
        (["claims", "capsnets"], "case 'capsnets' is unknown: did you mean 'capsnet'?"),
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
