"""Fine-tuning: what fits is kept, the class capsules are reinitialized, and a resumed run needs no source."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import torchcaps
from tests.helpers.small_runs import small_run
from torchcaps.errors import TorchcapsError
from torchcaps.pretrained.loading import load_trained
from torchcaps.pretrained.transfer import class_dependent, start_from, transfer_weights
from torchcaps.train import fit_run, new_run, resolve
from torchcaps.train.checkpoint import load_weights

SMALL = {"model": "capsnet", "options": {"filters": 4, "types": 2, "hidden": (8, 8)}, "steps": 2, "batch_size": 8}


def test_the_default_weights() -> None:
    model = torchcaps.create_model("capsnet", pretrained=True)
    assert model.class_names == tuple("0123456789")
    assert torchcaps.create_model("convnet-avg", pretrained=True, image_size=28, channels=1).classes == 10


@pytest.mark.parametrize("name", ["capsnet", "matrix-capsnet", "ar-capsnet", "convnet-avg"])
def test_other_classes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model = torchcaps.create_model(name, pretrained="mnist-laptop", classes=3)
    whole = torchcaps.create_model(name, pretrained="mnist-laptop")
    assert f"weights of {name}-mnist-laptop are kept; reinitialized: " in caplog.text
    assert model(torch.rand(2, 1, 28, 28)).scores.shape == (2, 3)
    first = "features.0.weight"
    assert torch.equal(model.state_dict()[first], whole.state_dict()[first])


def test_class_capsules_are_reinitialized_even_for_as_many_classes() -> None:
    source = load_trained("capsnet-mnist-laptop")
    other = source.config.model_copy(update={"class_names": tuple("abcdefghij")})
    dependent = class_dependent(other)
    assert dependent == {"capsules.layers.0.transform.weight", "decoder.layers.0.weight"}
    model, transfer = transfer_weights(source, other)
    assert set(transfer.for_classes) == dependent
    assert not torch.equal(model.state_dict()["capsules.layers.0.transform.weight"], _weight(source.model))
    same, kept = transfer_weights(source, source.config)
    assert torch.equal(_weight(same), _weight(source.model))
    assert kept.describe("x") == f"all {len(kept.kept)} weights of x are kept, because the classes are the same"


def _weight(model: torch.nn.Module) -> torch.Tensor:
    return model.state_dict()["capsules.layers.0.transform.weight"]


def test_a_run_starts_with_the_weights_and_resumes_without_the_source(tmp_path: Path) -> None:
    source = small_run(tmp_path / "source", **SMALL)
    config = resolve(**SMALL, data="glyphs", train_images=60, start_from="source", learning_rate=1e-9, device="cpu")
    run = new_run(config, tmp_path / "run")
    start_from(run, load_trained(source.path))
    initial = config.build_model()
    load_weights(run.initial, initial)
    source.path.rename(tmp_path / "gone")
    fit_run(run)
    trained = torchcaps.load(run.path)
    for name, value in initial.named_parameters():
        assert torch.allclose(value, trained.state_dict()[name], atol=1e-6), name


def test_nothing_fits() -> None:
    config = resolve(model="lenet", data="glyphs")
    with pytest.raises(TorchcapsError, match=r"no weight of capsnet-mnist-laptop .* fits lenet"):
        transfer_weights(load_trained("capsnet-mnist-laptop"), config)
