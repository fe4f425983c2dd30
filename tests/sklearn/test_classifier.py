"""CapsuleClassifier: input shapes and ranges, pipelines and searches."""
# ruff: noqa: N806  (X is scikit-learn's name)

from __future__ import annotations

import importlib
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.sklearn import CapsuleClassifier, find_layout

SMALL = {"filters": 16, "types": 4, "kernel": 3, "decoder": "none"}


def small(**settings: Any) -> CapsuleClassifier:
    return CapsuleClassifier(**{"options": SMALL, "epochs": 4, "random_state": 0, "learning_rate": 3e-3} | settings)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    return load_digits(return_X_y=True)


def test_it_learns_scikit_learns_digits(digits: tuple[Any, Any]) -> None:
    X, y = digits
    words = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    classifier = small().fit(X[:1000], words[y[:1000]])
    assert classifier.layout_.shape == (8, 8, 1)
    assert list(classifier.classes_) == sorted(words)
    assert classifier.score(X[1000:], words[y[1000:]]) > 0.85
    chances = classifier.predict_proba(X[1000:1010])
    assert chances.shape == (10, 10)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    assert list(classifier.predict(X[1000:1010])) == list(classifier.classes_[chances.argmax(1)])


def test_rows_and_images_are_the_same(digits: tuple[Any, Any]) -> None:
    X, y = digits[0][:100], digits[1][:100]
    flat = small(epochs=1).fit(X, y).predict_proba(X)
    for shaped in (X.reshape(-1, 8, 8), X.reshape(-1, 8, 8, 1)):
        np.testing.assert_array_equal(small(epochs=1).fit(shaped, y).predict_proba(shaped), flat)
    np.testing.assert_array_equal(small(epochs=1, image_shape=(8, 8)).fit(X, y).predict_proba(X), flat)
    # Numbers of another range are the same pictures; halves keep every bit.
    np.testing.assert_array_equal(small(epochs=1).fit(X / 16, y).predict_proba(X / 16), flat)


def test_how_rows_become_images() -> None:
    colors = np.arange(2 * 3 * 2 * 3, dtype=np.float32).reshape(2, 18)
    layout = find_layout(colors, (3, 2, 3))
    images = layout.images(colors)
    assert images.shape == (2, 3, 3, 3), "channels first, and a column of empty pixels for a square"
    assert torch.equal(images[:, :, :, 2], torch.zeros(2, 3, 3))
    np.testing.assert_allclose(images[1, 2, 1, 0], colors.reshape(2, 3, 2, 3)[1, 1, 0, 2] / 35)
    seven = find_layout(np.ones((2, 7), np.float32), None)
    assert seven.shape == (3, 3, 1)
    assert seven.images(np.zeros((1, 7), np.float32)).isfinite().all(), "all alike: nothing to scale by"
    beyond = find_layout(np.array([[0, 0, 0, 10]], np.float32), None).images(np.array([[-5, 5, 15, 10]], np.float32))
    assert beyond.flatten().tolist() == [0, 0.5, 1, 1], "what is darker or brighter than in training is cut"


@pytest.mark.parametrize("shape", [(3, 3), (8,), (4, 4, 4, 1), (0, 0)])
def test_an_impossible_shape(digits: tuple[Any, Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="image_shape should be"):
        small(image_shape=shape).fit(digits[0][:20], digits[1][:20])


def test_small_images_are_enlarged_for_the_network(digits: tuple[Any, Any]) -> None:
    X, y = digits[0][:60], digits[1][:60]
    classifier = CapsuleClassifier(options={"filters": 4, "types": 2, "decoder": "none"}, epochs=1).fit(X, y)
    assert (classifier.layout_.factor, classifier.model_.image_shape) == (3, (1, 24, 24))
    assert classifier.predict(X[:3]).shape == (3,)


def test_a_clone_in_a_pipeline_in_a_search(digits: tuple[Any, Any]) -> None:
    X, y = digits[0][:200], digits[1][:200]
    pipeline = clone(make_pipeline(MinMaxScaler(), small(epochs=1)))
    grid = {"capsuleclassifier__options": [SMALL, {**SMALL, "routing": "uniform"}]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["mean_test_score"]) == 2
    assert search.predict(X[:5]).shape == (5,)


def test_the_same_number_gives_the_same_network(digits: tuple[Any, Any]) -> None:
    X, y = digits[0][:100], digits[1][:100]
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first = small(epochs=1).fit(X, y)
    assert torch.equal(torch.rand(1), wanted), "the caller's random numbers go on as if nothing had been trained"
    again, other = small(epochs=1).fit(X, y), small(epochs=1, random_state=1).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict_proba(X), first.predict_proba(X))


def test_it_is_silent_unless_asked(digits: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    X, y = digits[0][:40], digits[1][:40]
    small(epochs=1).fit(X, y)
    assert capsys.readouterr() == ("", "")
    small(epochs=1, verbose=True).fit(X, y)
    assert "epoch 1.00" in " ".join(capsys.readouterr().err.split())


def test_mistakes_are_one_sentence(digits: tuple[Any, Any]) -> None:
    X, y = digits[0][:20], digits[1][:20]
    with pytest.raises(TorchcapsError, match="model 'capsnett' is unknown: did you mean 'capsnet'"):
        CapsuleClassifier("capsnett").fit(X, y)
    with pytest.raises(TorchcapsError, match="setting of capsnet 'filter' is unknown: did you mean 'filters'"):
        CapsuleClassifier(options={"filter": 3}).fit(X, y)
    with pytest.raises(
        TorchcapsError, match="dataset 'in-memory:9' existed only in the Python process that trained on it"
    ):
        load_dataset("in-memory:9")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.errors.find_spec", lambda name: None)
    with pytest.raises(TorchcapsError, match=r"needs sklearn: run pip install -e '\.\[sklearn\]'"):
        importlib.reload(importlib.import_module("torchcaps.sklearn"))
