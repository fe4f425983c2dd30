"""A model as a graph, for any number of images, and how far a graph's answers are from the model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.choice import use_kernels
from torchcaps.models import Model

INPUT = "images"
OUTPUTS = ("scores", "pose")  # a model without capsules has no pose
TOLERANCE = 1e-5  # between the scores of the file and of the model
BATCHES = (1, 3)  # how many images the answers are compared on

Answer = Callable[[Tensor], Tensor]


class Answers(nn.Module):
    """A model that gives plain tensors: scores (B, classes) and, where there are capsules, pose (B, classes, D)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.model(images)
        return (output.scores,) if output.pose is None else (output.scores, output.pose)


def trace(model: Model) -> ExportedProgram:
    """The graph of a model in evaluation mode, with the loops of its routing written out.

    Only the plain definitions become part of it: a graph cannot hold compiled loops. The example has two images,
    since one would be taken for the only number there is.
    """
    was_training = model.training
    images: Any = {0: Dim("batch", min=1)}
    try:
        with use_kernels("plain"), torch.no_grad():
            return torch.export.export(Answers(model.eval()), (some_images(model, 2),), dynamic_shapes=(images,))
    finally:
        model.train(was_training)


def some_images(model: Model, count: int) -> Tensor:
    """Random pixels of the model's shape, the same each time."""
    device = next(model.parameters()).device
    return torch.rand(count, *model.image_shape, generator=torch.Generator().manual_seed(count)).to(device)


def check_answers(model: Model, answer: Answer) -> float:
    """The largest difference of scores between the model and a file's answer; an error if it is too large."""
    was_training = model.training
    differences = list[float]()
    try:
        with use_kernels("plain"), torch.no_grad():
            for count in BATCHES:
                images = some_images(model, count)
                wanted = model.eval()(images).scores
                differences.append((answer(images).to(wanted) - wanted).abs().max().item())
    finally:
        model.train(was_training)
    if not max(differences) <= TOLERANCE:  # also where it is no number
        raise TorchcapsError(
            f"the exported scores differ from the model's by {max(differences):.1e}, more than {TOLERANCE:.0e}: "
            "nothing was written"
        )
    return max(differences)
