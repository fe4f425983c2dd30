"""Faster predictions are those of the model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.models import FastInference, Model, Output, create_model
from torchcaps.models import inference as fast
from torchcaps.pretrained import list_pretrained
from torchcaps.pretrained.loading import load_pretrained


@pytest.mark.parametrize("card", list_pretrained(), ids=lambda card: card.name)
def test_a_frozen_copy_gives_the_same_answers(card: object) -> None:
    """Held for every bundled network and image, whether or not the copy is the faster form here."""
    model = load_pretrained(card)
    images = torch.rand(3, 1, *model.image_shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        frozen = fast.freeze(model, images[0])
        for image in images:
            expected, found = model(image), frozen(image)
            for a, b in zip(expected[:3], found[:3], strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)


@pytest.fixture
def model() -> Model:
    return create_model("lenet", size="laptop", image_size=28, channels=1, classes=10)


def test_threads_may_freeze_at_once() -> None:
    """A service has a thread per model."""
    models = [create_model("lenet", size="laptop", image_size=28, channels=1, classes=10) for _ in range(8)]
    image = torch.rand(1, 1, 28, 28)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda model: FastInference(model)(image).scores, models))
    for model, scores in zip(models, found, strict=True):
        torch.testing.assert_close(scores, model(image).scores.detach(), rtol=1e-5, atol=1e-5)


def test_batches_of_any_size(model: Model) -> None:
    predict = FastInference(model, batch=2)
    for count in (0, 1, 2, 2, 3):
        images = torch.rand(count, 1, 28, 28)
        with torch.no_grad():
            torch.testing.assert_close(predict(images).scores, model(images).scores, rtol=1e-5, atol=1e-5)
    assert predict._chosen is not None


def test_wrong_images_are_refused_before_and_after_the_choice(model: Model) -> None:
    predict = FastInference(model)
    broken = torch.full((1, 1, 28, 28), torch.nan)
    for _ in range(2):
        with pytest.raises(TorchcapsError, match="finite pixels"):
            predict(broken)
        with pytest.raises(TorchcapsError, match="was built for images"):
            predict(torch.zeros(1, 1, 20, 20))
        predict(torch.zeros(1, 1, 28, 28))
    frozen = fast.freeze(model, torch.zeros(1, 1, 28, 28))
    with pytest.raises(TorchcapsError, match="finite pixels"):
        frozen(broken)


def test_a_copy_that_differs_is_not_used(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Output(torch.zeros(1, 10), torch.zeros(1, 10))
    monkeypatch.setattr(fast, "freeze", lambda model, images: lambda images: wrong)
    predict, image = FastInference(model), torch.rand(1, 1, 28, 28)
    assert torch.equal(predict(image).scores, model(image).scores)
    assert predict._chosen is predict.model


def test_another_implementation_is_used_if_it_agrees_and_is_faster(model: Model) -> None:
    image, asked = torch.rand(1, 1, 28, 28), []
    with torch.inference_mode():
        answer = model(image)

    def slowly(images: torch.Tensor) -> Output:
        time.sleep(0.05)
        return Output(*model(images))

    def wrong(images: torch.Tensor) -> Output:
        return Output(answer.scores + 1e-3, answer.logits)

    def quick(images: torch.Tensor) -> Output:
        asked.append(len(images))
        return Output(*model(images))

    predict = FastInference(model)
    predict._chosen = slowly
    for other, used in ((wrong, False), (quick, True), (slowly, False)):
        predict.offer(other)
        assert predict.accepted is used
    assert predict._chosen is quick
    del asked[:]
    torch.testing.assert_close(predict(image).scores, answer.scores)
    assert asked == [1]
