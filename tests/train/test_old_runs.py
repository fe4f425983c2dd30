"""Run directories written by earlier releases still load, evaluate and resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torchcaps
from torchcaps.cli.main import app

RUNS = Path(__file__).parents[1] / "fixtures" / "runs-0.1.0"


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(RUNS / request.param, tmp_path / "run"))


@pytest.mark.parametrize("run", ["finished"], indirect=True)
def test_a_finished_run_loads_and_answers(run: Path) -> None:
    model = torchcaps.load(run)
    assert len(model.class_names) == 10
    with torch.no_grad():
        assert model(torch.rand(2, 1, 28, 28)).scores.shape == (2, 10)


@pytest.mark.parametrize("run", ["finished"], indirect=True)
def test_a_finished_run_is_evaluated_as_before(run: Path) -> None:
    before = json.loads((run / "result.json").read_text(encoding="utf-8"))
    result = CliRunner().invoke(app, ["evaluate", str(run), "--json"])
    assert result.exit_code == 0, result.output
    (after,) = json.loads(result.stdout)
    assert after["test_accuracy"] == pytest.approx(before["test_accuracy"], abs=0.011), "two of 200 images"


@pytest.mark.parametrize("run", ["unfinished"], indirect=True)
def test_an_unfinished_run_resumes(run: Path) -> None:
    result = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert result.exit_code == 0, result.output
    steps = [line.split(",")[0] for line in (run / "metrics.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert steps[0] == "7", "the line written before the interruption"
    assert steps[-1] == "27", "three epochs of 180 images in batches of 20"
    assert (run / "result.json").is_file()
