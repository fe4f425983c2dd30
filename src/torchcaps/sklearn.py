"""Capsule networks as a scikit-learn classifier: ``from torchcaps.sklearn import CapsuleClassifier``."""

from __future__ import annotations

import logging
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from torchcaps.data import TensorImages, datasets
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.models import Model, create_model
from torchcaps.progress import silence
from torchcaps.train import fit_run, load, new_run, resolve

__all__ = ["CapsuleClassifier"]

need_extra("sklearn", "CapsuleClassifier", "sklearn")

log = logging.getLogger(__name__)
Array = NDArray[np.float32]
MOST_PIXELS_A_PIXEL = 32  # how often a pixel is repeated in each direction, at most


@dataclass(frozen=True)
class Layout:
    """The conversion of samples to images, determined from the training samples.

    Args:
        rows: the shape of one sample.
        shape: height, width and channels of its image.
        low, high: the values that are mapped to 0 and 1.
        factor: how often each pixel is repeated in both directions, for networks that need larger images.
    """

    rows: tuple[int, ...]
    shape: tuple[int, int, int]
    low: float
    high: float
    factor: int = 1

    @property
    def side(self) -> int:
        """Height and width of the network's square input."""
        return self.factor * max(self.shape[:2])

    def images(self, samples: Array) -> Tensor:
        """Convert samples to images (N, C, side, side) in [0, 1], scaled as in training and zero-padded."""
        if samples.shape[1:] != self.rows:
            raise ValueError(f"X has samples of shape {samples.shape[1:]}, but was fitted on shape {self.rows}")
        height, width, channels = self.shape
        scaled = np.clip((samples - self.low) / (self.high - self.low or 1.0), 0.0, 1.0).reshape(len(samples), -1)
        missing = height * width * channels - scaled.shape[1]
        pixels = np.pad(scaled, ((0, 0), (0, missing))).reshape(len(samples), height, width, channels)
        square = max(height, width)
        pixels = np.pad(pixels, ((0, 0), (0, square - height), (0, square - width), (0, 0)))
        pixels = pixels.repeat(self.factor, 1).repeat(self.factor, 2).transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(pixels, np.float32))


def find_layout(samples: Array, image_shape: tuple[int, ...] | None) -> Layout:
    """Determine the layout of samples (N, features), (N, height, width) or (N, height, width, channels)."""
    rows = samples.shape[1:]
    if image_shape is None and len(rows) == 1:
        shape = guess_shape(rows[0])
    else:
        shape = check_shape(image_shape or rows, math.prod(rows))
    return Layout(rows, shape, float(samples.min()), float(samples.max()))


def guess_shape(features: int) -> tuple[int, int, int]:
    """Return the smallest grayscale square with room for this many features.

    >>> guess_shape(784), guess_shape(60)
    ((28, 28, 1), (8, 8, 1))
    """
    side = math.isqrt(features - 1) + 1
    if side * side != features:
        log.warning("%d features are no square: %d empty pixels fill them up", features, side * side - features)
    return side, side, 1


def check_shape(shape: tuple[int, ...], numbers: int) -> tuple[int, int, int]:
    """Return height, width and channels, if their product is the size of a sample."""
    if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != numbers:
        raise ValueError(
            f"image_shape should be (height, width) or (height, width, channels) of {numbers} numbers, got {shape}"
        )
    height, width, channels = (*shape, 1)[:3]
    return height, width, channels


def enlarge(layout: Layout, model: str, classes: int, size: str, options: dict[str, Any]) -> Layout:
    """Return the layout with the smallest images for which the network can be built."""
    for factor in range(1, MOST_PIXELS_A_PIXEL + 1):
        larger = replace(layout, factor=factor)
        shape: dict[str, Any] = {"image_size": larger.side, "channels": layout.shape[2], "classes": classes}
        try:
            with torch.device("meta"):  # shapes alone
                create_model(model, **shape, size=size, **options)
        except TorchcapsError as error:
            refusal = error
        else:
            return larger
    raise refusal


# ruff: noqa: N803  (X is scikit-learn's name)


BATCH = 250  # images per forward pass in prediction


class CapsuleClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that trains a capsule network in the way of ``torchcaps train``.

    Args:
        model: one of ``torchcaps.list_models()``.
        size: ``laptop`` or ``paper``.
        options: settings of the model, such as ``{"routing": "em"}``.
        image_shape: (height, width) or (height, width, channels) of a flat sample; None assumes grayscale squares.
        epochs: passes over the images.
        batch_size, learning_rate: None for those of the model's recipe.
        augmentation: random transforms of the training images, such as ``shift=2``.
        validation: fraction of the images held out to select the best checkpoint.
        device: ``auto``, ``cpu``, ``cuda``, ``mps``.
        random_state: seed for a reproducible result.
        verbose: show the progress of the training.

    Attributes:
        classes_: the labels, sorted.
        model_: the trained network, which takes images (B, C, H, W) in [0, 1].
        layout_: the conversion of samples to such images.
        n_features_in_: numbers in a row, or the height where samples are images already.

    X may be rows (n, features), gray images (n, height, width) or (n, height, width, channels), with numbers of any
    range: the smallest and the largest of the training become black and white. Where a network needs larger images,
    each pixel is repeated.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> small = CapsuleClassifier(options={"filters": 8, "types": 2, "decoder": "none"}, epochs=1, random_state=0)
    >>> small.fit(X[:100], y[:100]).predict_proba(X[100:102]).shape
    (2, 10)
    """

    classes_: NDArray[Any]
    layout_: Layout
    model_: Model

    def __init__(
        self,
        model: str = "capsnet",
        *,
        size: str = "laptop",
        options: dict[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        epochs: int = 5,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        augmentation: str = "",
        validation: float = 0.1,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model, self.size, self.options, self.image_shape = model, size, options, image_shape
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self.augmentation, self.validation = augmentation, validation
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on samples and their labels of any type."""
        samples, targets = validate_data(self, X, y, allow_nd=True, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"CapsuleClassifier needs at least 2 classes, got one class: {self.classes_[0]!r}")
        layout = find_layout(samples, self.image_shape)
        self.layout_ = enlarge(layout, self.model, len(self.classes_), self.size, self.options or {})
        names = tuple(map(str, self.classes_))
        self.model_ = self._train(TensorImages(self.layout_.images(samples), torch.from_numpy(labels).long(), names))
        return self

    def _train(self, images: TensorImages) -> Model:
        """Train in a temporary folder, without changing the global random state."""
        with (
            datasets.temporary(images) as name,
            tempfile.TemporaryDirectory(prefix="torchcaps-") as folder,
            torch.random.fork_rng(devices=[]),
            silence(not self.verbose),
        ):
            config = resolve(
                model=self.model,
                size=self.size,
                options=self.options or {},
                data=name,
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                augmentation=self.augmentation,
                validation=self.validation,
                device=self.device,
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            )
            run = new_run(config, Path(folder) / "run")
            fit_run(run)
            return load(run.path)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return probabilities (n, classes): the softmax of the network's logits."""
        check_is_fitted(self)
        images = self.layout_.images(validate_data(self, X, reset=False, allow_nd=True, dtype=np.float32))
        with torch.no_grad():
            logits = torch.cat([self.model_(some).logits for some in images.split(BATCH)])
        found: NDArray[np.float32] = logits.softmax(1).numpy()
        return found

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found
