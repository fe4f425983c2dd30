"""A few extreme images through every model; ``python -m tests.numerics`` tries ten thousand for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from tests.numerics import __main__ as numerics
from tests.numerics.stress import KINDS, Stressed, check_edges, draw_images, stress
from torchcaps.data import Subset
from torchcaps.data.base import Batch
from torchcaps.errors import TorchcapsError
from torchcaps.models import ModelRecord, Output, models
from torchcaps.models.chen2019 import LeNet
from torchcaps.train import fit_run, new_run, resolve

QUICK = len(KINDS)  # a batch of one image of each kind


@pytest.mark.parametrize("record", list(models), ids=lambda record: record.name)
def test_outputs_and_gradients_are_finite(record: ModelRecord) -> None:
    """One mixed batch in training and in evaluation mode, each clean and attacked."""
    found = stress(record, 4 * QUICK, batch=QUICK)
    assert found.troubles == []
    assert found.images == 4 * QUICK


def test_batches_of_one_kind_have_finite_gradients_behind_many_batch_normalizations() -> None:
    """Twenty batch normalizations multiply the gradient of denormal pixels beyond float32; training flushes them."""
    found = stress(models.get("resnet20"), 4 * (len(KINDS) + 1) * 4, batch=4)
    assert found.troubles == []


def test_trouble_is_found_in_every_mode_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "black", lambda count, shape, draw: torch.full((count, *shape), float("nan")))
    troubles = stress(models.get("lenet"), 8 * QUICK, batch=QUICK).troubles
    for kind in ("mixed", "black"):
        for mode in ("training", "evaluation"):
            assert any(trouble.startswith(f"{kind}, {mode}") for trouble in troubles)


def test_a_mixed_batch_holds_every_kind() -> None:
    images = draw_images("mixed", QUICK, (1, 8, 8), torch.Generator().manual_seed(0))
    darkest, brightest = images.amax((1, 2, 3)).min(), images.amin((1, 2, 3)).max()
    assert (darkest, brightest) == (0, 1)  # black and white
    assert sum(0 < float(image.amax()) < 1e-30 for image in images) == 2  # 1e-30 and 1e-42
    assert sum(float(image.sum()) == 1 for image in images) == 1  # one pixel


def test_failures_are_reported_and_the_program_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that crashes is counted as a failure; the next one is still measured."""
    out = tmp_path / "numerics.json"
    asked = ["--models", "lenet", "convnet-avg", "--images", "9", "--batch", "9", "--out", str(out)]
    assert numerics.main(asked) == 0
    report = json.loads(out.read_text())
    assert report["images"] == 18

    def crash(record: ModelRecord, *arguments: object, **settings: object) -> Stressed:
        if record.name == "lenet":
            raise RuntimeError("broken")
        return stress(record, 9, batch=9)

    monkeypatch.setattr(numerics, "stress", crash)
    assert numerics.main(asked) == 1
    found = json.loads(out.read_text())["models"]
    assert found["lenet"]["troubles"] == ["RuntimeError: broken"]
    assert found["convnet-avg"]["images"] == 9


def test_only_models_measured_at_this_commit_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "numerics.json"
    done = {"lenet": {"commit": "a"}, "capsnet": {"commit": "b"}}
    out.write_text(json.dumps({"inputs_per_model": 9, "seed": 0, "models": done}))
    assert numerics.measured_before(out, 9, 0, "a") == {"lenet": {"commit": "a"}}
    assert numerics.measured_before(out, 10, 0, "a") == {}
    assert numerics.measured_before(out, 9, 0, "a+") == {}
    assert numerics.measured_before(out, 9, 0, None) == {}
    assert numerics.measured_before(tmp_path / "none.json", 9, 0, "a") == {}


@pytest.mark.parametrize("record", list(models), ids=lambda record: record.name)
def test_edge_cases(record: ModelRecord) -> None:
    found = Stressed()
    check_edges(record, 0, found)
    assert found.troubles == []


def test_trouble_at_the_edges_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = LeNet.forward

    def careless(model: LeNet, images: torch.Tensor, check_finite: bool = True) -> Output:
        output = forward(model, images, check_finite=False)
        return output if images.dtype == torch.float32 else output._replace(scores=output.scores + 1)

    monkeypatch.setattr(LeNet, "forward", careless)
    found = Stressed()
    check_edges(models.get("lenet"), 0, found)
    assert [trouble.split(":")[0] for trouble in found.troubles] == [
        "a pixel that is nan",
        "a pixel that is inf",
        "a pixel that is -inf",
        "torch.float16",
        "torch.bfloat16",
    ]


def test_a_nonfinite_batch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image of the set is damaged: the run stops at the first batch that holds it, and says which images."""
    whole, damaged_sizes = Subset.batch, {90}  # the training images; the other 10 are for validation

    def damaged(images: Subset, indices: torch.Tensor) -> Batch:
        batch = whole(images, indices)
        if len(images) in damaged_sizes:
            batch.images[indices == 7] = float("nan")
        return batch

    monkeypatch.setattr(Subset, "batch", damaged)
    settings = {"train_images": 100, "epochs": 1, "batch_size": 16, "device": "cpu", "save_minutes": 0.0}
    run = new_run(resolve(model="tiny", data="glyphs", **settings), tmp_path / "run")
    with pytest.raises(TorchcapsError, match=r"became nan at step \d+, images \[([\d, ]*\D)?7\b[\d, ]*\]\. .* is in"):
        fit_run(run)
    damaged_sizes.add(10)
    with pytest.raises(TorchcapsError, match="got NaN or infinity in 1 of 10 images, the first at index 7: "):
        fit_run(new_run(run.config(), tmp_path / "other"))
    monkeypatch.undo()
    assert fit_run(run).step == 6
