"""A capsule network with the interface of scikit-learn."""
# ruff: noqa: N803  (X is scikit-learn's name)

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from torchcaps.data.held import HeldImages, held_dataset
from torchcaps.models import Model
from torchcaps.progress import silence
from torchcaps.sklearn.layout import Layout, enlarge, find_layout
from torchcaps.train import fit, load, new_run, resolve

BATCH = 250  # images at a time, for answers


class CapsuleClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Images as rows of numbers in, classes out: a network of this library, trained as ``torchcaps train`` does.

    Args:
        model: one of ``torchcaps.list_models()``.
        size: ``laptop`` or ``paper``.
        options: settings of the model, such as ``{"routing": "em"}``.
        image_shape: (height, width) or (height, width, channels) of a flat row; None takes rows for grey squares.
        epochs: passes over the images.
        batch_size, learning_rate: None for those of the model's recipe.
        augmentation: random changes of the images in training, such as ``shift=2``.
        validation: share of the images that is not trained on but chooses the best state of the network.
        device: ``auto``, ``cpu``, ``cuda``, ``mps``.
        random_state: a number for the same result every time.
        verbose: show how the training goes on.

    Attributes:
        classes_: the labels, sorted.
        model_: the trained network, which takes images (B, C, H, W) in [0, 1].
        layout_: how rows become such images.
        n_features_in_: numbers in a row, or the height where samples are images already.

    X may be rows (n, features), grey images (n, height, width) or (n, height, width, channels), with numbers of any
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
        """Train on images and their labels, which may be of any kind."""
        samples, targets = validate_data(self, X, y, allow_nd=True, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"CapsuleClassifier needs at least 2 classes, got one class: {self.classes_[0]!r}")
        layout = find_layout(samples, self.image_shape)
        self.layout_ = enlarge(layout, self.model, len(self.classes_), self.size, self.options or {})
        names = tuple(map(str, self.classes_))
        self.model_ = self._train(HeldImages(self.layout_.images(samples), torch.from_numpy(labels).long(), names))
        return self

    def _train(self, images: HeldImages) -> Model:
        """A network trained in a folder that is gone afterwards; the caller's random numbers stay as they are."""
        with (
            held_dataset(images) as name,
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
            fit(run)
            return load(run.path)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Probabilities (n, classes): the softmax of the network's logits."""
        check_is_fitted(self)
        images = self.layout_.images(validate_data(self, X, reset=False, allow_nd=True, dtype=np.float32))
        with torch.no_grad():
            logits = torch.cat([self.model_(some).logits for some in images.split(BATCH)])
        found: NDArray[np.float32] = logits.softmax(1).numpy()
        return found

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each image."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found
