"""Faster predictions for batches of a fixed size: a traced and frozen copy of a model, if that is faster."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from itertools import chain
from statistics import median

import torch
from torch import Tensor, nn

from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models.base import Model, Output

TOLERANCE = 1e-5  # largest difference between the answers of another implementation and of the model
WARMUP = 3  # runs in which PyTorch optimizes the frozen copy
ROUNDS = 31  # of the comparison

Predict = Callable[[Tensor], Output]
_tracing = threading.Lock()  # torch.jit.trace has global state


class _Tensors(nn.Module):
    """A model that returns a tuple of tensors, as tracing requires."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.model(images)
        return tuple(each for each in output[:3] if each is not None)


class FastInference:
    """Predictions of a model in evaluation mode, with less overhead for batches of one size.

    The first batch of that size is used to trace a copy of the model, in which convolutions are prepared for oneDNN
    and Python is gone, and to time it. It is used from then on if it agrees with the model to 1e-5 and is faster. Later
    changes of the model's weights do not reach it. Batches of other sizes, and of models on a GPU, take the model.
    :meth:`offer` adds another implementation to the comparison.

    >>> from torchcaps import create_model
    >>> predict = FastInference(create_model("lenet", size="laptop"))
    >>> predict(torch.zeros(1, 1, 28, 28)).scores.shape
    torch.Size([1, 10])

    Args:
        model: a trained model.
        batch: the number of images in a batch.
    """

    def __init__(self, model: Model, batch: int = 1) -> None:
        self.model, self.batch = model.eval(), batch
        self.accepted = False  # whether an implementation from outside is used
        self._chosen: Predict | None = None

    def __call__(self, images: Tensor) -> Output:
        usual = images.shape[0] == self.batch and images.device.type == "cpu" and not self.model.training
        if usual and self.accepted and self._chosen is not None:
            return self._chosen(images)  # without the overhead of inference_mode, which is PyTorch's
        with torch.inference_mode():
            if not usual:
                output: Output = self.model(images)
                return output
            if self._chosen is None:
                self._chosen = self._choose(images)
            return self._chosen(images)

    def offer(self, predict: Predict) -> None:
        """Use another implementation from now on, if it agrees with the model to 1e-5 and is faster.

        Random images serve for the comparison. ``accepted`` tells whether it is used.
        """
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(self.batch, *self.model.image_shape, generator=generator)
        with torch.inference_mode():
            current = self._chosen or self._choose(images)
            self._chosen = _fastest([current, predict], self.model(images), images)
        self.accepted = self._chosen is predict

    def _choose(self, images: Tensor) -> Predict:
        """Return the faster of the model and its frozen copy."""
        expected = self.model(images)  # refuses images that the model cannot take
        return _fastest([self.model, freeze(self.model, images)], expected, images)


def _fastest(candidates: list[Predict], expected: Output, images: Tensor) -> Predict:
    """Return the fastest candidate among the first and those that agree with the expected output."""
    seconds: dict[Predict, list[float]] = {}
    for predict in candidates:
        for _ in range(WARMUP):
            found = predict(images)
        if not seconds or _agree(found, expected):
            seconds[predict] = []
    for predict in chain.from_iterable([seconds] * ROUNDS):
        began = time.perf_counter()
        predict(images)
        seconds[predict].append(time.perf_counter() - began)
    return min(seconds, key=lambda predict: median(seconds[predict]))  # the minimum is that of warm caches


def _agree(found: Output, expected: Output) -> bool:
    """Whether scores, probabilities and poses are the same to 1e-5."""
    if (found.pose is None) != (expected.pose is None):
        return False
    pairs = [(found.scores, expected.scores), (found.logits.softmax(1), expected.logits.softmax(1))]
    if found.pose is not None and expected.pose is not None:
        pairs.append((found.pose, expected.pose))
    # A comparison with NaN is False.
    return all(a.shape == b.shape and bool(((a - b).abs() <= TOLERANCE).all()) for a, b in pairs)


def freeze(model: Model, images: Tensor) -> Predict:
    """Trace a model with plain kernels for the shape of these images, and optimize the graph."""
    with _tracing, torch.no_grad(), use_kernels("plain"):
        # About checks of shapes. Not restored, because other threads may change the filters meanwhile.
        warnings.filterwarnings("ignore", category=torch.jit._trace.TracerWarning, module="torchcaps")
        traced = torch.jit.trace(_Tensors(model).eval(), (images.clone(),), check_trace=False)
        graph = torch.jit.optimize_for_inference(torch.jit.freeze(traced))

    def predict(images: Tensor) -> Output:
        model.check_images(images)
        return Output(*graph(images))

    return predict
