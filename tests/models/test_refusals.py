"""Incompatible parts raise a clear error when the model is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.models import Ensemble, create_model


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("capsnet", {"routing": "em", "nonlinearity": "none"}, "the capsules below have only a pose"),
        ("ar-capsnet", {"routing": "em"}, "the capsules below have only a pose"),
        ("g-capsnet-conv", {"routing": "em"}, "the capsules below have only a pose"),
        ("capsnet", {"routing": "attention", "size": "paper"}, "over 1152 children"),
        ("ar-capsnet", {"routing": "discriminative-l1"}, "outside backpropagation.*: choose another routing"),
        ("capsnet", {"transform": "conv"}, "transform 'conv' is unknown.*One of: dense, shared"),
        ("capsnet", {"nonlinearity": "sqush"}, "did you mean 'squash'"),
        ("capsnet", {"rectifier": "gelu"}, "rectifier 'gelu' is unknown"),
        ("ar-capsnet", {"layers": -1}, "layers >= 0"),
        ("ar-capsnet", {"dropout": 1.0}, "dropout < 1"),
        ("g-capsnet-multi", {"image_size": 20}, "at least 23 pixels are needed"),
        ("convnet-fc-lk", {"image_size": 20}, "at least 25 pixels are needed"),
        ("convnet-cr", {"decoder": "some"}, "decoder 'some' is unknown"),
        ("capsnet-l1", {"routing_options": {"penalti": "l1"}}, "does not take these settings"),
    ],
)
def test_refused_at_construction(name: str, settings: dict[str, Any], message: str) -> None:
    with torch.device("meta"), pytest.raises(TorchcapsError, match=message) as caught:
        create_model(name, **settings)
    assert "\n" not in str(caught.value)


def test_ensembles_need_models_for_the_same_images() -> None:
    small, large = (create_model("lenet", image_size=size) for size in (28, 32))
    with pytest.raises(TorchcapsError, match="same images and classes"):
        Ensemble([small, large])
    with pytest.raises(TorchcapsError, match="at least one model"):
        Ensemble([])


def test_an_ensemble_averages_scores() -> None:
    members = [create_model(name, size="laptop").eval() for name in ("lenet", "capsnet", "ar-capsnet")]
    images = torch.rand(3, 1, 28, 28)
    expected = sum(member(images).scores for member in members) / 3
    output = Ensemble(members).eval()(images)
    torch.testing.assert_close(output.scores, expected)
    assert torch.equal(output.logits.argmax(1), output.scores.argmax(1))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_pixels_are_not_looked_at_where_a_graph_is_traced() -> None:
    """The check reads a tensor's values, which torch.compile, torch.export, torch.jit and vmap do not allow."""
    model, images = create_model("lenet", size="laptop").eval().requires_grad_(False), torch.rand(3, 1, 28, 28)
    expected = model(images).scores
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    exported = torch.export.export(model, (images,)).module()
    traced = torch.jit.trace(lambda pixels: model(pixels).scores, images)
    for answer in (
        compiled(images).scores,
        exported(images).scores,
        traced(images),
        torch.func.vmap(lambda image: model(image.unsqueeze(0)).scores.squeeze(0))(images),
    ):
        torch.testing.assert_close(answer, expected)
    assert "isfinite" not in str(traced.graph)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert model(mode.from_tensor(images)).scores.shape == (3, 10)


def test_large_pixels_are_finite() -> None:
    """Their sum is not: it overflows."""
    images = torch.full((2, 1, 28, 28), -3e38)
    assert not images.sum().isfinite()
    assert create_model("lenet", size="laptop")(images).scores.shape == (2, 10)


def test_a_mean_image_is_not_learned_from_damaged_pixels() -> None:
    model = create_model("g-capsnet-multi", size="laptop", channels=3, image_size=32)
    images = torch.rand(4, 3, 32, 32)
    images[2, 0, 0, 0] = float("nan")
    with pytest.raises(TorchcapsError, match="in 1 of 4 images, the first at index 2"):
        model.prepare(images)
    assert not model.preprocess.mean.any()
