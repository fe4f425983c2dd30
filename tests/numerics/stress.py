"""Extreme images: outputs and gradients of a model must stay finite."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.models import ModelRecord, create_model
from torchcaps.train import resolve
from torchcaps.train.device import flush_denormals
from torchcaps.train.objective import Objective

Shape = tuple[int, int, int]
BATCH = 64
MIXED = "mixed"


def one_pixel(count: int, shape: Shape, draw: Generator) -> Tensor:
    images = torch.zeros(count, *shape)
    places = torch.randint(images[0].numel(), (count,), generator=draw)
    images.view(count, -1)[torch.arange(count), places] = 1
    return images


def constant(count: int, shape: Shape, draw: Generator) -> Tensor:
    return torch.rand(count, 1, 1, 1, generator=draw).expand(count, *shape).clone()


KINDS: dict[str, Callable[[int, Shape, Generator], Tensor]] = {
    "black": lambda count, shape, draw: torch.zeros(count, *shape),
    "white": lambda count, shape, draw: torch.ones(count, *shape),
    "constant": constant,
    "saturated": lambda count, shape, draw: torch.randint(2, (count, *shape), generator=draw).float(),
    "1e-30": lambda count, shape, draw: 1e-30 * torch.rand(count, *shape, generator=draw),
    "1e-42": lambda count, shape, draw: 1e-42 * torch.rand(count, *shape, generator=draw),  # not normal
    "1e30, clipped": lambda count, shape, draw: (1e30 * torch.randn(count, *shape, generator=draw)).clamp(0, 1),
    "one pixel": one_pixel,
    "random": lambda count, shape, draw: torch.rand(count, *shape, generator=draw),
}


EDGES = ("empty batch", "float16", "bfloat16", "a pixel that is not finite")


@dataclass
class Stressed:
    """Of one model: images tried, and a sentence for everything that was not a number."""

    images: int = 0
    troubles: list[str] = field(default_factory=list)


def build(record: ModelRecord, seed: int) -> Objective:
    """The model in its laptop size with the loss that its recipe gives it."""
    channels, size, _ = record.image
    torch.manual_seed(seed)
    model = create_model(record.name, size="laptop", channels=channels, image_size=size)
    return Objective(model, resolve(model=record.name, data="glyphs"))


def check(objective: Objective, images: Tensor, labels: Tensor, name: str, found: Stressed) -> Tensor:
    """One step's worth of arithmetic; the gradient with respect to the images."""
    images = images.clone().requires_grad_()
    objective.zero_grad()
    loss, output = objective(images, labels, None, 0.5)
    loss.backward()
    assert images.grad is not None
    numbers = {"loss": loss, "scores": output.scores, "logits": output.logits, "gradient of the images": images.grad}
    numbers |= {
        f"gradient of {key}": value.grad for key, value in objective.named_parameters() if value.grad is not None
    }
    if output.pose is not None:
        numbers["pose"] = output.pose
    found.troubles += [f"{name}: {key}" for key, value in numbers.items() if not bool(value.isfinite().all())]
    found.images += len(images)
    return images.grad


def check_edges(record: ModelRecord, seed: int, found: Stressed) -> None:
    """An empty batch, half precision, and pixels that are not finite, which the model must refuse."""
    draw = Generator().manual_seed(seed)
    images = torch.cat([kind(1, record.image, draw) for kind in KINDS.values()])
    model = build(record, seed).model.eval()
    expected = model(images, check_finite=False).scores
    if model(images[:0]).scores.shape != (0, model.classes):
        found.troubles.append("empty batch: scores")
    for pixel in (float("nan"), float("inf"), -float("inf")):
        damaged = images.clone()
        damaged[0, 0, 0, 0] = pixel
        with contextlib.suppress(TorchcapsError):
            model(damaged)
            found.troubles.append(f"a pixel that is {pixel}: not refused")
    for dtype in (torch.float16, torch.bfloat16):
        output = build(record, seed).model.eval().to(dtype)(images.to(dtype), check_finite=False)
        distance = (output.scores.float() - expected).abs().max().item()
        if not (distance <= 8 * torch.finfo(dtype).eps and output.logits.isfinite().all()):  # also where it is NaN
            found.troubles.append(f"{dtype}: scores differ from those in float32 by {distance}")


def draw_images(kind: str, count: int, shape: Shape, draw: Generator) -> Tensor:
    """Images of one kind; "mixed" holds every kind in turn, in random order."""
    if kind != MIXED:
        return KINDS[kind](count, shape, draw)
    makers = list(KINDS.values())
    images = torch.cat([makers[number % len(makers)](1, shape, draw) for number in range(count)])
    return images[torch.randperm(count, generator=draw)]


def stress(record: ModelRecord, inputs: int, *, batch: int = BATCH, seed: int = 0) -> Stressed:
    """Batches of mixed images, then of each kind, in training and in evaluation mode, clean and attacked."""
    objective, draw, found = build(record, seed), Generator().manual_seed(seed), Stressed()
    schedule = itertools.cycle(itertools.product((MIXED, *KINDS), (True, False)))
    while found.images < inputs:
        kind, training = next(schedule)
        labels = torch.randint(10, (batch,), generator=draw)
        images = draw_images(kind, batch, record.image, draw)
        objective.train(training)
        name = f"{kind}, {'training' if training else 'evaluation'}"
        with flush_denormals() if training else contextlib.nullcontext():  # as in the training loop
            slope = check(objective, images, labels, name, found)
            if found.images < inputs:
                check(objective, (images + 0.3 * slope.sign()).clamp(0, 1), labels, f"{name}, attacked", found)
    return found
