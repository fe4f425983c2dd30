"""A few strange images through every model; ``python -m tests.numerics`` tries ten thousand for each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tests.train.tiny  # noqa: F401  (registers the model)
from tests.numerics.stress import KINDS, Stressed, check_edges, one_of_each, stress
from torchcaps.data import Subset
from torchcaps.data.base import Batch
from torchcaps.errors import TorchcapsError
from torchcaps.models import ModelRecord, Output, models
from torchcaps.models.chen2019 import LeNet
from torchcaps.train import fit, new_run, resolve


@pytest.mark.parametrize("record", list(models), ids=lambda record: record.name)
def test_answers_and_gradients_are_numbers(record: ModelRecord) -> None:
    found = one_of_each(record)
    assert found.troubles == []
    assert found.images == 2 * len(KINDS)


def test_trouble_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "black", lambda count, shape, draw: torch.full((count, *shape), float("nan")))
    assert any("black" in trouble for trouble in stress(models.get("lenet"), 300).troubles)


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


def test_a_batch_that_is_not_a_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(TorchcapsError, match=r"became nan at step \d+, images \[([\d, ]*\D)?7\b[\d, ]*\]\. .* kept in"):
        fit(run)
    damaged_sizes.add(10)
    with pytest.raises(TorchcapsError, match="got NaN or infinity in 1 of 10 images, the first at index 7: "):
        fit(new_run(run.config(), tmp_path / "other"))
    monkeypatch.undo()
    assert fit(run).step == 6
