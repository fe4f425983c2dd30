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
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps.models.registry import models
from torchcaps.train import resolve
from torchcaps.train.checkpoint import save_weights
from torchcaps.train.run_folder import load_model

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


RESIZED = [(record.name, settings) for record in models for settings in record.earlier_laptop]


@pytest.mark.parametrize(("name", "settings"), RESIZED)
def test_weights_in_an_earlier_laptop_size_still_load(name: str, settings: dict[str, object], tmp_path: Path) -> None:
    record, weights = models.get(name), tmp_path / "best.safetensors"
    data = "glyphs" if record.image[0] == 1 else "cifar-10"
    config = resolve(model=name, data=data)
    channels, pixels, _ = config.image_shape
    classes = len(config.class_names)
    model = create_model(name, image_size=pixels, channels=channels, classes=classes, size="laptop", **settings)
    save_weights(weights, model)
    images = torch.rand(2, *config.image_shape)
    with torch.no_grad():
        assert torch.equal(load_model(config, weights)(images).scores, model.eval()(images).scores)
    assert settings != record.laptop
    with pytest.raises(TorchcapsError, match="does not fit this model"):
        load_model(resolve(model=name, data=data, size="paper"), weights)


def test_models_have_been_resized() -> None:
    assert "convnet-fc" in dict(RESIZED)
