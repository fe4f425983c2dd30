"""Callbacks and TensorBoard observe a training without changing it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from tests.train.test_resume import make, same_weights
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.train import Callback, Interrupted, MetricRow, fit_run, read_metrics
from torchcaps.train.checkpoint import TrainingProgress
from torchcaps.train.tensorboard import coupling_maps


class Watcher(Callback):
    """Records its calls, reseeds the random number generator and runs the model."""

    def __init__(self) -> None:
        self.steps: list[MetricRow] = []
        self.validations: list[MetricRow] = []
        self.ends: list[TrainingProgress] = []

    def on_step(self, row: MetricRow) -> None:
        self.steps.append(row)
        torch.manual_seed(len(self.steps))
        torch.rand(7)

    def on_validation(self, row: MetricRow, model: Model) -> None:
        assert not model.training
        assert not torch.is_grad_enabled()
        model(torch.rand(3, *model.image_shape))
        self.validations.append(row)

    def on_end(self, progress: TrainingProgress, model: Model) -> None:
        self.ends.append(progress)


@pytest.mark.parametrize("name", ["tiny", "capsnet"])
def test_callbacks_and_resuming_do_not_change_the_weights(tmp_path: Path, name: str) -> None:
    alone, watched, stopped = (make(tmp_path / word, name) for word in ("alone", "watched", "stopped"))
    fit_run(alone)
    watcher, first, second = Watcher(), Watcher(), Watcher()
    progress = fit_run(watched, callbacks=[watcher])
    with pytest.raises(Interrupted):
        fit_run(stopped, should_stop=lambda: len(first.steps) == 5, callbacks=[first])
    fit_run(stopped, callbacks=[second])
    assert same_weights(alone, watched)
    assert same_weights(alone, stopped)
    assert [line.step for line in watcher.steps] == list(range(1, 13))
    held = [line for line in read_metrics(watched.metrics_file) if line.split == "validation"]
    assert [(line.step, line.accuracy) for line in watcher.validations] == [(line.step, line.accuracy) for line in held]
    assert watcher.ends == [progress]
    assert first.ends == []
    assert [line.step for line in first.steps + second.steps] == list(range(1, 13))
    for one, other in zip(watcher.steps, first.steps + second.steps, strict=True):
        assert (one.loss, one.accuracy, one.learning_rate) == (other.loss, other.accuracy, other.learning_rate)


def test_what_a_step_is_told(tmp_path: Path) -> None:
    run, watcher = make(tmp_path / "run", "tiny"), Watcher()
    fit_run(run, callbacks=[watcher])
    last = [line for line in read_metrics(run.metrics_file) if line.split == "train"][-1]
    counts = torch.tensor([32.0] * 5 + [20.0]).repeat(2)  # 180 images in batches of 32, twice
    losses = torch.tensor([line.loss for line in watcher.steps])
    assert last.loss == pytest.approx(float((losses * counts).sum() / counts.sum()), rel=1e-5)


def test_an_error_of_a_callback_comes_through_and_the_run_can_go_on(tmp_path: Path) -> None:
    class Fails(Callback):
        def on_validation(self, row: MetricRow, model: Model) -> None:
            raise ZeroDivisionError

    run, alone = make(tmp_path / "run", "tiny"), make(tmp_path / "alone", "tiny")
    with pytest.raises(ZeroDivisionError):
        fit_run(run, callbacks=[Fails()])
    fit_run(run)
    fit_run(alone)
    assert same_weights(run, alone)


def test_several_processes_cannot_be_watched_from_outside(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "tiny", devices=2)
    with pytest.raises(TorchcapsError, match="start several processes with torchrun"):
        fit_run(run, callbacks=[Watcher()])


def test_tensorboard_has_drawings_and_couplings(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = make(tmp_path / "run", "capsnet")
    fit_run(run)
    events = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert set(events.Tags()["images"]) == {"reconstructions", "couplings"}
    held = [line.step for line in read_metrics(run.metrics_file) if line.split == "validation"]
    for name in ("reconstructions", "couplings"):
        assert [each.step for each in events.Images(name)] == held
        assert all(each.width > 300 for each in events.Images(name))


def test_a_map_shows_where_the_couplings_lead() -> None:
    """Held against the definition, written out for one layer: couplings to the winner times lengths, by place."""
    from torchcaps.analysis import inspect_layers
    from torchcaps.models import create_model

    torch.manual_seed(0)
    model = create_model("capsnet", size="laptop", filters=8, types=2).eval()
    images = torch.rand(2, 1, 28, 28)
    output, [layer] = inspect_layers(model, images)
    maps = coupling_maps(model, images)
    assert [name for name, _ in maps] == [f"votes, iteration {number}" for number in (1, 2, 3)]
    side = layer.child_grid[0]
    for image in range(2):
        winner = int(output.scores[image].argmax())
        given = torch.zeros(side, side)
        for slot in range(layer.child_index.shape[1]):
            row, rest = divmod(int(layer.child_index[0, slot, 0]), side * 2)
            column, kind = divmod(rest, 2)
            length = layer.children.pose[image, row, column, kind].norm()
            given[row, column] += layer.couplings[2][image, 0, slot, winner] * length
        expected = given / given.max()
        middles = [int((place + 0.5) * 28 / side) for place in range(side)]
        shown = maps[2][1][image, 0][middles][:, middles]
        torch.testing.assert_close(shown, expected, atol=1e-4, rtol=1e-3)
    plain = create_model("convnet-avg", size="laptop").eval()
    assert coupling_maps(plain, images) == []


@pytest.mark.parametrize("trouble", ["in the way", "full", "read-only"])
def test_training_goes_on_where_tensorboard_cannot_write(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    alone, run = make(tmp_path / "alone", "tiny"), make(tmp_path / "run", "tiny")
    fit_run(alone)
    folder = run.path / "tensorboard"
    if trouble == "in the way":
        folder.write_text("a file where a folder should be", encoding="utf-8")
    else:
        folder.mkdir()
        options = {"full": "size=4k", "read-only": "ro"}[trouble]
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a tmpfs cannot be mounted without the rights of root")
        if trouble == "full":
            (folder / "ballast").write_bytes(bytes(4096))
    try:
        fit_run(run)
    finally:
        if folder.is_dir():
            subprocess.run(["umount", str(folder)], check=True)
    assert same_weights(alone, run)
    (said,) = (record.getMessage() for record in caplog.records)
    assert "continues without TensorBoard" in said
    assert "Traceback" not in capfd.readouterr().err
