from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.small_runs import measured, small_run
from torchcaps.analysis import measure_alignment, measure_compactness, reconstruct_with, vote_histograms
from torchcaps.analysis.explanation import sample_images, select_images
from torchcaps.analysis.perturbation import perturb_dimensions, reconstruction_change
from torchcaps.data import Batch, load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.train import RunFolder, load

SMALL = {"filters": 8, "types": 2, "hidden": [16, 16]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("runs") / "capsnet", model="capsnet", options=SMALL, learning_rate=0.01)


def some(run: RunFolder, count: int) -> Batch:
    return sample_images(load(run.path), load_dataset("glyphs", "test"), count)


def test_compactness_of_a_factor_in_nats(run: RunFolder) -> None:
    batch = some(run, 20)
    wanted = measure_compactness(load(run.path), batch.images, batch.labels)
    for factor in ("rotation", "shift_y"):
        found = measured("compactness", run, factor=factor, images=20)
        assert found.value == pytest.approx(wanted["factors"][factor]["score"])
        assert found.details["score_of_mean_shares"] == wanted["factors"][factor]["score_of_mean_shares"]
        assert found.images is None, "no share of images"
    with pytest.raises(TorchcapsError, match="factor 'rotaton' is unknown: did you mean 'rotation'"):
        measured("compactness", run, factor="rotaton", images=2)


def test_alignment_by_transformation_and_digit(run: RunFolder) -> None:
    batch = some(run, 20)
    wanted = measure_alignment(load(run.path), batch.images, batch.labels)
    for name, factor in (("rotation", "rotation"), ("x", "shift_x"), ("y", "shift_y")):
        for sign in "+-":
            found = measured("alignment-ratio", run, transformation=name + sign, images=20)
            assert found.value == pytest.approx(wanted["ratio"][factor][sign]["mean"])
    digit = int(batch.labels[0])
    found = measured("alignment-ratio", run, transformation="x-", images=20, digit=digit)
    assert found.value == pytest.approx(wanted["ratio"]["shift_x"]["-"]["by_class"][digit])
    with pytest.raises(TorchcapsError, match=r"transformation 'z\+' is unknown"):
        measured("alignment-ratio", run, transformation="z+")


def test_cosines_of_opposite_changes(run: RunFolder) -> None:
    batch = some(run, 20)
    wanted = measure_alignment(load(run.path), batch.images, batch.labels)["cosine"]["shift_x"]
    found = measured("alignment-cosines", run, factor="shift_x", images=20)
    assert found.value == pytest.approx(wanted["mean"])
    histogram = found.details["histogram"]
    assert histogram["counts"] == wanted["counts"]
    assert sum(histogram["counts"]) == 20
    assert (histogram["edges"][0], histogram["edges"][-1], len(histogram["edges"])) == (-1, 1, 21)
    middles = [(low + high) / 2 for low, high in zip(histogram["edges"], histogram["edges"][1:], strict=False)]
    mean = sum(middle * count for middle, count in zip(middles, histogram["counts"], strict=True)) / 20
    assert found.value == pytest.approx(mean, abs=0.05), "each cosine lies in its bin"


def test_peaks_of_the_cosines_stand_out_from_the_middle(run: RunFolder) -> None:
    batch = some(run, 20)
    cosine = measure_alignment(load(run.path), batch.images, batch.labels)["cosine"]
    counts = torch.tensor([each["counts"] for each in cosine.values()]).sum(0).tolist()
    found = measured("alignment-peaks", run, images=20)
    assert found.details["histogram"]["counts"] == counts
    assert sum(counts) == 60, "three factors"
    assert found.value == pytest.approx(100 / 60 * (min(counts[0], counts[-1]) - (counts[9] + counts[10]) / 2))


def test_lead_of_a_digit_in_alignment(run: RunFolder) -> None:
    batch = some(run, 30)
    ratios = measure_alignment(load(run.path), batch.images, batch.labels)["ratio"].values()
    sides = [side["by_class"] for each in ratios for side in each.values()]
    means = {label: sum(side[label] for side in sides) / 6 for label in sides[0]}
    first, *others = sorted(means, key=lambda label: -means[label])
    found = measured("alignment-lead", run, digit=first, images=30)
    assert found.value == pytest.approx(means[first] - means[others[0]])
    assert found.details["by_class"] == pytest.approx({str(label): mean for label, mean in means.items()})
    assert measured("alignment-lead", run, digit=others[-1], images=30, rank="lowest").value == pytest.approx(
        means[others[-2]] - means[others[-1]]
    )
    assert measured("alignment-lead", run, digit=others[0], images=30).value == pytest.approx(
        means[others[0]] - means[first]
    ), "negative where another digit leads"
    with pytest.raises(TorchcapsError, match="rank 'middle' is unknown"):
        measured("alignment-lead", run, digit=first, images=2, rank="middle")
    with pytest.raises(TorchcapsError, match="no image of digit 77"):
        measured("alignment-lead", run, digit=77, images=20)


def test_random_vectors_need_no_training() -> None:
    found = measured("alignment-random", None, vectors=5, dimensions=32)
    assert found.value == pytest.approx(0.464, abs=0.01)
    assert found.details["sd"] == pytest.approx(0.268, abs=0.01)


def test_moved_dimensions_over_the_papers_range(run: RunFolder) -> None:
    found = measured("perturbation-sheet", run, low=-0.2, high=0.2, step=0.05)
    assert found.value is None
    assert found.picture is not None
    assert found.details["moves"] == pytest.approx([-0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2], abs=1e-6)
    model = load(run.path)
    first = select_images(model, load_dataset("glyphs", "test"), None).images[0]
    wanted = reconstruction_change(perturb_dimensions(model, first, reach=0.2, steps=9)).tolist()
    assert found.details["change"][0]["by_dimension"] == pytest.approx(wanted)
    with pytest.raises(TorchcapsError, match=r"as far to one side as to the other, got -1 to 2"):
        measured("perturbation-sheet", run, low=-1, high=2, step=0.5)


def test_reconstructions_by_the_decoder_of_another_run(run: RunFolder, tmp_path: Path) -> None:
    """A hundred images that the model gets right; a drawing that the other model takes for another class is wrong."""
    other = small_run(tmp_path / "decoding", model="capsnet", options=SMALL, seed=1)
    found = measured("wrong-reconstructions", run, {"decoder": other}, images=20)
    model, decoding, glyphs = load(run.path), load(other.path), load_dataset("glyphs", "test")
    batch = glyphs.batch(torch.arange(len(glyphs)))
    with torch.no_grad():
        right = torch.nonzero(model(batch.images).scores.argmax(1) == batch.labels).flatten()
        chosen = [
            index
            for label in batch.labels[right].unique().tolist()
            for index in [index for index in right.tolist() if batch.labels[index] == label][: 20 // model.classes]
        ]
        images, labels = batch.images[chosen], batch.labels[chosen]
        drawn = {
            "other decoder": reconstruct_with(decoding, model, images),
            "own": decoding.reconstruct(decoding(images)),
        }
        wrong = {name: int((decoding(each).scores.argmax(1) != labels).sum()) for name, each in drawn.items()}
    assert (labels == model(images).scores.argmax(1)).all()
    assert found.images == len(chosen) <= 20
    assert found.value == pytest.approx(100 * wrong["other decoder"] / len(chosen))
    assert found.details["wrong"] == wrong["other decoder"]
    error = float((drawn["other decoder"] - images).square().mean())
    assert found.details["mean_squared_error"] == pytest.approx(error)
    assert found.picture is not None
    own = measured("wrong-reconstructions", run, {"decoder": other}, images=20, capsules="decoder")
    assert own.value == pytest.approx(100 * wrong["own"] / len(chosen))
    with pytest.raises(TorchcapsError, match="name it in the role 'decoder'"):
        measured("wrong-reconstructions", run)
    with pytest.raises(TorchcapsError, match="capsules 'mine' is unknown"):
        measured("wrong-reconstructions", run, {"decoder": other}, capsules="mine")


def test_distances_of_votes_by_iteration(run: RunFolder, tmp_path: Path) -> None:
    routed = small_run(
        tmp_path / "em", model="matrix-capsnet", options={"filters": 8, "types": [2, 2, 2]}, steps=1, train_images=30
    )
    found = measured("vote-distances", routed)
    model = load(routed.path)
    images = select_images(model, load_dataset("glyphs", "test"), None).images[:3]
    with torch.no_grad():
        assert found.details == vote_histograms(model, images)
    assert len(found.details["whole"]["weights"][0]) == 3, "iterations"
    assert found.picture is not None
    name = load_dataset("glyphs", "test").class_names[2]
    near, whole = (measured("vote-distances", routed, category=name, whole=whole) for whole in (False, True))
    with torch.no_grad():
        assert near.details == whole.details == vote_histograms(model, images[2:])  # one image, of that class
    scales = [picture.axes[0].get_yscale() for picture in (near.picture, whole.picture) if picture]
    assert scales == ["linear", "log"]  # figures 2 and B.2
    with pytest.raises(TorchcapsError, match="category 'trukc' is unknown"):
        measured("vote-distances", routed, category="trukc")
    with pytest.raises(TorchcapsError, match="vote distances need EM routing"):
        measured("vote-distances", run)
