"""``torchcaps.fit``: train your own model on your own images from Python."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchcaps
from tests.helpers.tiny_model import Tiny
from torchcaps.cli.main import main
from torchcaps.data import ImageSet, Subset, load_dataset, split_off
from torchcaps.errors import TorchcapsError
from torchcaps.models import Output
from torchcaps.train import Callback, Interrupted, MetricRow, evaluate_accuracy, fit
from torchcaps.train.checkpoint import read_progress

SETTINGS: dict[str, Any] = {"batch_size": 32, "learning_rate": 0.01, "device": "cpu"}


class Plain(nn.Module):
    """A plain PyTorch classifier."""

    def __init__(self, *, capsules: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
        self.capsules = capsules

    def forward(self, images: Tensor) -> Tensor | Output:
        logits: Tensor = self.layers(images)
        return Output(logits.sigmoid(), logits) if self.capsules else logits


@pytest.fixture(scope="module")
def splits() -> tuple[ImageSet, ImageSet]:
    training, validation = split_off(load_dataset("glyphs", "test"), 100, seed=0)
    return training, validation


@pytest.mark.parametrize("kind", ["Model", "logits", "Output"])
def test_any_model_learns_and_keeps_its_best_weights(kind: str, splits: tuple[ImageSet, ImageSet]) -> None:
    torch.manual_seed(0)
    model: nn.Module = Tiny((1, 28, 28), 10) if kind == "Model" else Plain(capsules=kind == "Output")
    loss = "margin" if kind == "Output" else "cross-entropy"
    found = torchcaps.fit(model, *splits, epochs=3, loss=loss, **SETTINGS)
    validations = [row for row in found.history if row.split == "validation"]
    assert found.path is None
    assert found.best_accuracy == max(row.accuracy for row in validations) > 0.6
    assert found.best_step in [row.step for row in validations]
    assert found.steps == 3 * 29
    assert not model.training
    with torch.no_grad():
        batch = splits[1].batch(torch.arange(100))
        output = model(batch.images)
        scores = output if isinstance(output, Tensor) else output.scores
    assert (scores.argmax(1) == batch.labels).float().mean().item() == pytest.approx(found.best_accuracy)
    if isinstance(model, torchcaps.Model):
        assert model.class_names == splits[0].class_names
        assert evaluate_accuracy(model, splits[1]).accuracy == found.best_accuracy


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step, self.reached = step, 0

    def on_step(self, row: MetricRow) -> None:
        self.reached = row.step


def test_a_stopped_run_resumes_in_python_with_the_same_weights(
    tmp_path: Path, splits: tuple[ImageSet, ImageSet], caplog: pytest.LogCaptureFixture
) -> None:
    def fresh() -> Plain:
        torch.manual_seed(0)
        return Plain()

    settings = SETTINGS | {"steps": 12, "loss": "cross-entropy"}
    expected = fresh()
    fit(expected, *splits, **settings)
    watcher = StopAt(5)
    with caplog.at_level(logging.WARNING), pytest.raises(Interrupted):
        fit(
            fresh(),
            *splits,
            out=tmp_path / "run",
            should_stop=lambda: watcher.reached == 5,
            callbacks=[watcher],
            **settings,
        )
    assert "cannot be resumed from the command line" in caplog.text
    assert read_progress(tmp_path / "run" / "checkpoints" / "last.safetensors").step == 5
    resumed = fresh()
    found = fit(resumed, *splits, out=tmp_path / "run", **settings)
    assert found.path == tmp_path / "run"
    assert found.steps == 12
    for name, value in expected.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    with pytest.raises(TorchcapsError, match="holds a run with other settings"):
        fit(fresh(), *splits, out=tmp_path / "run", **settings | {"steps": 13})
    with pytest.raises(TorchcapsError, match="has changed since the run"):
        fit(fresh(), Subset(splits[0], torch.arange(500)), splits[1], out=tmp_path / "run", **settings)


@pytest.mark.parametrize("command", [["train", "--resume"], ["evaluate"], ["predict"], ["explain"], ["export"]])
def test_the_command_line_says_why_it_cannot_use_such_a_run(
    tmp_path: Path,
    splits: tuple[ImageSet, ImageSet],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    fit(Plain(), *splits, out=tmp_path / "run", steps=1, loss="cross-entropy", **SETTINGS)
    arguments = [*command, str(tmp_path / "run"), *([str(tmp_path)] if command == ["predict"] else [])]
    monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert "this run was trained by torchcaps.fit with a model that is not registered (Plain)" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_set": [1, 2]}, "train_set should be an ImageSet, got list: wrap a torch Dataset"),
        ({"loss": "marginal"}, "loss 'marginal' is unknown"),
        ({"optimizer": "adem"}, "optimizer 'adem' is unknown: did you mean 'adam'"),
        ({"schedule": "steps:1:2"}, "schedule 'steps' is unknown"),
        ({"colour": 3}, "setting 'colour' is unknown"),
        ({"devices": 2}, "torchcaps.fit trains in one process"),
        ({"model": nn.Flatten()}, "Flatten has no parameters to train"),
        (
            {"model": nn.Conv2d(1, 10, 28)},
            r"Conv2d should return logits \(32, 10\).*got Tensor.*\(32, 10, 1, 1\)",
        ),
        ({"model": Tiny((1, 28, 28), 4)}, "was built for 4 classes, train_set has 10"),
        ({"model": Tiny((1, 32, 32), 10)}, r"was built for images \(1, 32, 32\), train_set has \(1, 28, 28\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes_are_told_in_one_sentence(
    tmp_path: Path, splits: tuple[ImageSet, ImageSet], change: dict[str, Any], message: str
) -> None:
    arguments = {"model": Plain(), "train_set": splits[0], "val_set": splits[1], "steps": 1} | SETTINGS | change
    with pytest.raises(TorchcapsError, match=message):
        fit(**arguments, out=tmp_path / "run")
    if "Conv2d" not in message:
        assert not (tmp_path / "run").exists()
