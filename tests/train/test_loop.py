from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import torchcaps
from tests.helpers.tiny_model import Tiny
from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.losses import LossRecord, losses
from torchcaps.models import Output
from torchcaps.train import evaluate_accuracy, fit_run, new_run, read_metrics, resolve, training_splits
from torchcaps.train.objective import correct

SETTINGS = {"model": "tiny", "data": "glyphs", "train_images": 200, "epochs": 3, "batch_size": 16, "device": "cpu"}


def test_selection_is_on_validation_and_best_is_loaded(tmp_path: Path) -> None:
    run = new_run(resolve(**SETTINGS, learning_rate=0.01), tmp_path / "run")
    progress = fit_run(run)
    held = [line for line in read_metrics(run.metrics_file) if line.split == "validation"]
    assert len(held) == 4
    assert progress.best_accuracy == max(line.accuracy for line in held)
    _, validation = training_splits(run.config())
    assert evaluate_accuracy(torchcaps.load(run.path), validation).accuracy == progress.best_accuracy


def test_validation_images_are_never_trained_on() -> None:
    config = resolve(**SETTINGS)
    training, validation = training_splits(config)
    assert len(training) == 180
    assert len(validation) == 20
    trained_on, held_back = (each.batch(torch.arange(len(each))).images.flatten(1) for each in (training, validation))
    assert torch.cdist(trained_on, held_back).min() > 0.1  # no image is in both
    again = training_splits(resolve(**SETTINGS, seed=5))[1].batch(torch.arange(20)).images
    assert torch.equal(again.flatten(1), held_back)  # seeds are chosen on the same images


def test_learns(tmp_path: Path) -> None:
    settings = SETTINGS | {"model": "capsnet", "train_images": 600, "epochs": 4, "options": {"filters": 16, "types": 4}}
    run = new_run(resolve(**settings, learning_rate=0.005), tmp_path / "run")
    fit_run(run)
    assert evaluate_accuracy(torchcaps.load(run.path), load_dataset("glyphs", "test")).accuracy > 0.9


def test_a_nan_stops_the_run_and_keeps_the_last_good_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy, calls = Tiny.classify, 0

    def poisoned(model: Tiny, images: torch.Tensor) -> Output:
        nonlocal calls
        calls += model.training
        output = healthy(model, images)
        return output._replace(logits=output.logits * float("nan")) if calls == 8 else output

    monkeypatch.setattr(Tiny, "classify", poisoned)
    run = new_run(resolve(**SETTINGS), tmp_path / "run")
    with pytest.raises(TorchcapsError, match=r"the loss became nan at step 7, images \[.*The last good state is in"):
        fit_run(run)
    assert all(torch.isfinite(value).all() for value in load_file(run.last).values())
    monkeypatch.undo()
    assert fit_run(run).step == 36  # and it can be resumed


def test_correct_needs_all_labels_among_the_highest() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8]])
    assert correct(scores, torch.tensor([0, 0])).tolist() == [True, True]
    assert correct(scores, torch.tensor([[1, 0], [1, 0]])).tolist() == [True, False]


def test_bfloat16_trains(tmp_path: Path) -> None:
    settings = SETTINGS | {"model": "capsnet", "epochs": 1, "options": {"filters": 8, "types": 2, "hidden": [8, 8]}}
    progress = fit_run(new_run(resolve(**settings, precision="bf16-mixed"), tmp_path / "run"))
    assert progress.step == 12


def test_unknown_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TorchcapsError, match="device 'gpux' cannot be used"):
        fit_run(new_run(resolve(**SETTINGS | {"device": "gpux"}), tmp_path / "run"))


def test_a_model_of_own_images_loads_when_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for number, name in enumerate(("bird", "cat", "dog")):
        (folder / name).mkdir(parents=True)
        for index in range(8):
            Image.new("RGB", (40, 30), (60 * number, 20 * index, 90)).save(folder / name / f"{index}.png")
    settings = {"model": "capsnet", "data": f"images:{folder},size=20", "steps": 2, "device": "cpu"}
    small = {"filters": 8, "types": 2, "hidden": [8, 8]}
    run = new_run(resolve(**settings, options=small), tmp_path / "run")
    fit_run(run)
    shutil.rmtree(folder)
    model = torchcaps.load(run.path)
    assert model.class_names == ("bird", "cat", "dog")
    assert model(torch.rand(2, 3, 20, 20)).scores.shape == (2, 3)


def test_a_run_stops_once_the_validation_images_are_right_enough(tmp_path: Path) -> None:
    settings = SETTINGS | {"epochs": 30, "learning_rate": 0.01}
    run = new_run(resolve(**settings, stop_at_accuracy=0.5), tmp_path / "run")
    progress = fit_run(run)
    held = [line for line in read_metrics(run.metrics_file) if line.split == "validation"]
    assert all(line.accuracy < 0.5 for line in held[:-1])
    assert held[-1].accuracy >= 0.5
    assert progress.best_step == progress.step == held[-1].step < 30 * 12
    assert len(held) == progress.step / 2, "validated ten times an epoch of 12 steps, rounded up"
    _, validation = training_splits(run.config())
    assert evaluate_accuracy(torchcaps.load(run.path), validation).accuracy == progress.best_accuracy
    assert fit_run(run).step == progress.step, "a run that has reached it goes on no further"


def test_a_run_far_from_its_target_is_validated_twice_an_epoch(tmp_path: Path) -> None:
    settings = SETTINGS | {"epochs": 30, "learning_rate": 0.01}
    run = new_run(resolve(**settings, stop_at_accuracy=0.79), tmp_path / "run")
    fit_run(run)
    held = [line for line in read_metrics(run.metrics_file) if line.split == "validation"]
    best, gaps = 0.0, dict[bool, set[int]]({False: set(), True: set()})
    for before, line in itertools.pairwise(held):
        best = max(best, before.accuracy)
        gaps[best >= 0.6].add(line.step - before.step)
    assert gaps == {False: {6}, True: {2}}, "an epoch has 12 steps, and 58 % are right at twice the errors of 79 %"


def test_only_images_that_test_nothing_can_stop_a_run() -> None:
    with pytest.raises(TorchcapsError, match="split to stop on 'test' is unknown\\. One of: validation"):
        resolve(**SETTINGS, stop_on="test")
    with pytest.raises(TorchcapsError, match="stop_at_accuracy"):
        resolve(**SETTINGS, stop_at_accuracy=99.22)
    config = resolve(**SETTINGS | {"data": "turntable-azimuth"}, stop_on="familiar", stop_at_accuracy=0.9)
    assert config.stop_on == "familiar"


def test_a_clipped_gradient_has_at_most_the_given_norm(tmp_path: Path) -> None:
    """SGD's first momentum is the first gradient."""
    settings = SETTINGS | {"steps": 1, "optimizer": "sgd", "train_images": 40}
    norms = []
    for clip in (None, 0.125):
        run = new_run(resolve(**settings, clip_norm=clip), tmp_path / str(clip))
        fit_run(run)
        state = [value for name, value in load_file(run.last).items() if name.endswith("momentum_buffer")]
        norms.append(float(torch.nn.utils.get_total_norm(state)))
    assert norms[0] > 0.2
    assert norms[1] == pytest.approx(0.125, rel=1e-4)


def test_one_cycle_covers_the_steps_of_the_run(tmp_path: Path) -> None:
    """The rate in the metrics is that of the last step: 1 / 70 % of the steps times the peak."""
    settings = SETTINGS | {"schedule": "one-cycle:0.07:0.1", "train_images": 40}
    for name, more, steps in (("epochs", {"epochs": 4}, 12), ("steps", {"epochs": 4, "steps": 10}, 10)):
        run = new_run(resolve(**settings | more), tmp_path / name)
        assert fit_run(run).step == steps
        assert list(read_metrics(run.metrics_file))[-1].learning_rate == pytest.approx(0.1 / steps)
    run = new_run(resolve(**settings, stop_at_accuracy=0.01), tmp_path / "accuracy")
    assert fit_run(run).step < 9
    assert list(read_metrics(run.metrics_file))[-1].learning_rate > 0.02


def test_the_pace_of_the_margin_scales_the_progress_of_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def compute(scores: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, progress: float) -> torch.Tensor:
        seen.append(progress)
        return logits.square().mean()

    monkeypatch.setitem(losses._records, "recorded", LossRecord("recorded", "records its progress", compute))
    for name, pace in (("all", None), ("half", 0.5)):
        fit_run(new_run(resolve(**SETTINGS, steps=4, loss="recorded", margin_pace=pace), tmp_path / name))
    assert seen == [0, 0.25, 0.5, 0.75, 0, 0.125, 0.25, 0.375]
