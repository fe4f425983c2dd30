from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.small_runs import measured, small_run
from torchcaps.data import Augmentation, TensorImages, load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run, measure_viewpoints
from torchcaps.evaluate.affine import affine_sets
from torchcaps.files import read_json, write_json
from torchcaps.reproduce.measures import measures
from torchcaps.reproduce.spec import list_papers, load_spec
from torchcaps.train import RunFolder, load, read_metrics
from torchcaps.train.splits import training_splits

LEARNING = {"learning_rate": 0.01, "train_images": 1000, "steps": 80}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("runs") / "tiny", **LEARNING)


@pytest.mark.parametrize("paper", list_papers())
def test_specs_give_measures_known_settings_only(paper: str) -> None:
    for table in load_spec(paper).tables.values():
        shared = set(table.settings.laptop) | set(table.settings.paper)
        used = [measures.get(cell.measure) for cell in table.cells.values() if cell.measure]
        assert shared <= {name for record in used for name in record.settings}
        for name, cell in table.cells.items():
            if cell.measure:
                assert set(cell.settings) <= set(measures.get(cell.measure).settings), name


def test_every_measure_has_unit_and_description() -> None:
    ours = [record for record in measures if record.function.__module__.startswith("torchcaps.")]  # tests add others
    assert len(ours) > 20
    for record in ours:
        assert record.unit in ("%", "nats", "ratio", "count", "distance", "orders of magnitude", "picture")
        assert record.how
        if record.name != "alignment-random":
            with pytest.raises(TorchcapsError, match=r"needs a training|is that of a training"):
                measured(record.name, None)


def test_accuracy_and_error_are_percentages_of_the_chosen_checkpoint(run: RunFolder) -> None:
    run.result_file.unlink(missing_ok=True)
    found = measured("test-accuracy", run)
    assert run.result_file.is_file(), "what was tested is kept with the run"
    assert found.value == 100 * evaluate_run(run)["test_accuracy"]
    assert found.images == 1000
    assert measured("test-error", run).value == pytest.approx(100 - (found.value or 0))


def test_accuracy_reuses_the_result_of_the_run(run: RunFolder) -> None:
    result = evaluate_run(run)
    write_json(run.result_file, result | {"test_accuracy": 0.125})
    assert measured("test-accuracy", run).value == 12.5
    few = measured("test-error", run, images=50)
    batch = load_dataset("glyphs", "test").batch(torch.arange(50))
    with torch.no_grad():
        right = int((load(run.path)(batch.images).scores.argmax(1) == batch.labels).sum())
    assert (few.value, few.images) == (pytest.approx(100 * (50 - right) / 50), 50)
    assert read_json(run.result_file)["test_accuracy"] == 0.125, "a test of other images is not the run's result"
    write_json(run.result_file, result)


def test_thirteen_crops_are_averaged(tmp_path: Path) -> None:
    run = small_run(tmp_path / "crops", image_shape=(1, 20, 20), augmentation="crop=20", **LEARNING)
    model, images = load(run.path), load_dataset("glyphs", "test").batch(torch.arange(200))
    offsets = [(0, 0), *((side * far, other * far) for far in (1, 2, 3) for side in (-1, 1) for other in (-1, 1))]
    with torch.no_grad():
        crops = [images.images[:, :, 4 + down : 24 + down, 4 + right : 24 + right] for down, right in offsets]
        scores = sum(model(crop).scores for crop in crops)
    wrong = int((scores.argmax(1) != images.labels).sum())
    found = measured("multicrop-error", run, images=200)
    assert (found.value, found.images) == (pytest.approx(wrong / 2), 200)
    assert found.value != measured("test-error", run, images=200).value, "a case in which the crops matter"


def test_learning_curve_is_that_of_the_validation_images(run: RunFolder) -> None:
    lines = [line for line in read_metrics(run.metrics_file) if line.split == "validation"]
    found = measured("learning-curve", run)
    assert found.details == {"curve": [[line.step, 100 * (1 - line.accuracy)] for line in lines], "split": "validation"}
    assert found.value == 100 * (1 - lines[-1].accuracy)


def test_early_part_of_a_learning_curve(run: RunFolder) -> None:
    """Whether a network learns faster shows early in training, not at the end of the curve."""
    whole = measured("learning-curve", run)
    errors = [error for _, error in whole.details["curve"]]
    assert len(errors) == 4
    half = measured("learning-curve", run, early=0.5)
    assert half.value == pytest.approx((errors[0] + errors[1]) / 2) != whole.value
    assert half.details["curve"] == whole.details["curve"]
    assert half.details["last"] == whole.value
    assert measured("learning-curve", run, early=0.1).value == errors[0], "one point at least"
    assert measured("learning-curve", run, early=1.0).value == pytest.approx(sum(errors) / 4)
    with pytest.raises(TorchcapsError, match=r"early is a share above 0 and up to 1, got 1\.5"):
        measured("learning-curve", run, early=1.5)


def test_an_ensemble_averages_the_scores_of_its_members(run: RunFolder, tmp_path: Path) -> None:
    other = small_run(tmp_path / "second", seed=1, **LEARNING)
    found = measured("ensemble-accuracy", run, {"member-1": other}, images=200)
    batch = load_dataset("glyphs", "test").batch(torch.arange(200))
    with torch.no_grad():
        scores = load(run.path)(batch.images).scores + load(other.path)(batch.images).scores
    assert found.value == pytest.approx(100 * (scores.argmax(1) == batch.labels).double().mean().item())
    assert (found.images, found.details["members"]) == (200, 2)
    with pytest.raises(TorchcapsError, match="an ensemble needs further members"):
        measured("ensemble-accuracy", run)


def test_train_accuracy_augments_images_as_in_training(run: RunFolder) -> None:
    training, _ = training_splits(run.config())
    batch = training.batch(torch.arange(300))
    moved = Augmentation("shift=2")(batch.images, torch.Generator().manual_seed(0))
    assert run.config().augmentation == "shift=2"
    with torch.no_grad():
        right = (load(run.path)(moved).scores.argmax(1) == batch.labels).double().mean().item()
    found = measured("train-accuracy", run, images=300)
    assert (found.value, found.images) == (pytest.approx(100 * right), 300)
    assert measured("train-accuracy", run).images == len(training) == 900


def test_affine_change_is_measured_on_affnist(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TorchcapsError, match="for models trained on digits on 40x40, not on glyphs: train on mnist-40"):
        measured("affnist-accuracy", run)
    # Glyphs stand in for all sets: no digit has to be fetched.
    monkeypatch.setattr("torchcaps.evaluate.affine.PLACED", ("glyphs",))
    monkeypatch.setattr("torchcaps.evaluate.affine.load_dataset", _glyphs)
    sets = affine_sets(load(run.path), "glyphs", 60)
    found = measured("affnist-accuracy", run, images=60)
    with torch.no_grad():
        scores = load(run.path)(sets.changed.batch(torch.arange(60)).images).scores
    assert found.value == pytest.approx(100 * (scores.argmax(1) == sets.changed.labels).double().mean().item())
    assert found.images == 60


def test_errors_on_novel_and_familiar_viewpoints(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    upright = _glyphs("mnist", "test")
    azimuths = {"azimuth": torch.tensor([0, 80, 160, 240]).repeat(250)}
    seen = TensorImages(upright.images, upright.labels, upright.class_names, azimuths)
    sets = (seen.where(azimuths["azimuth"] < 100), seen.where(azimuths["azimuth"] > 100), "azimuth")
    monkeypatch.setattr("torchcaps.reproduce.measures.accuracy.viewpoint_sets", lambda data: sets)
    wanted = measure_viewpoints(load(run.path), *sets, images_used=100)
    for measure, sides in (("viewpoint-error", "novel"), ("familiar-error", "familiar")):
        found = measured(measure, run, images=100)
        assert (found.value, found.images) == (100 * wanted[f"{sides}_error"], 100)
        shares = {str(degree): 1 - error / 100 for degree, error in found.details["by_degree"]}
        assert shares == pytest.approx(wanted["by_degree"][sides])
    assert wanted["novel_error"] != wanted["familiar_error"]


def _glyphs(name: str, split: str) -> TensorImages:
    """Upright glyphs by the name of MNIST, moved ones by any other."""
    upright = load_dataset("glyphs", split)
    assert isinstance(upright, TensorImages)
    if name == "mnist":
        return upright
    return TensorImages(upright.images.roll(5, 3), upright.labels, upright.class_names)
