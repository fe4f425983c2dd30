"""What a model answers to each kind of question: tensors in, messages out. One thread at a time for each model."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from torchcaps.analysis import inspect_layers, vote_maps
from torchcaps.analysis.couplings import class_share, is_normalized_over_parents
from torchcaps.analysis.inspection import LayerState
from torchcaps.analysis.perturbation import move_dimensions
from torchcaps.analysis.receptive_field import grid_extents
from torchcaps.analysis.votes import vote_histograms
from torchcaps.attacks import create_attack
from torchcaps.demo.picture import encode_images
from torchcaps.demo.schemas import (
    AttackRequest,
    AttackResponse,
    PredictResponse,
    ReconstructRequest,
    ReconstructResponse,
    RoutingResponse,
    VoteDistances,
)
from torchcaps.demo.served import ServedModel
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, Output
from torchcaps.routing.em import EMRouting

PGD = {"steps": 10, "relative_step": 0.25}
MOST_PASSES = 45  # of an attack through a model, over all views of its logits: some seconds at most
# Attacks set the random numbers of the whole process: two models' at once would disturb each other.
_random_numbers = threading.Lock()


@torch.no_grad()
def predict_batch(served: ServedModel, images: list[Tensor]) -> list[PredictResponse]:
    """Answers for images (C, H, W) of several requests, computed together."""
    output = served.model(torch.stack(images))
    poses: list[list[list[float]] | None] = [None] * len(images)
    if output.pose is not None:
        poses = output.pose.tolist()
    return [
        PredictResponse(model=served.name, label=int(scores.argmax()), scores=scores.tolist(), pose=pose, image=picture)
        for scores, pose, picture in zip(output.scores, poses, map(encode_images, images), strict=True)
    ]


@torch.no_grad()
def reconstruct_pose(served: ServedModel, question: ReconstructRequest) -> ReconstructResponse:
    """The image of a pose, or with a sweep those of all poses in which one number of the capsule is moved."""
    model, label = served.model, check_label(served.model, question.label)
    size = served.info.pose_size
    if [len(row) for row in question.pose] != [size] * model.classes:
        raise TorchcapsError(f"a pose of {served.name} has {model.classes} rows of {size} numbers, as predict gives it")
    pose = torch.tensor([question.pose])  # (1, classes, D)
    if question.sweep is not None:
        pose = move_dimensions(pose, label, reach=question.sweep.reach, steps=question.sweep.steps)
    unused = pose.new_zeros(len(pose), model.classes)  # a drawing is made from the pose alone
    images = model.reconstruct(Output(unused, unused, pose), torch.full((len(pose),), label))
    if question.sweep is not None:
        images = images.view(-1, question.sweep.steps, *images.shape[1:])
    return ReconstructResponse(model=served.name, images=encode_images(images))


def routing_maps(served: ServedModel, image: Tensor, label: int | None) -> RoutingResponse:
    """Which places of the image voted for the class, iteration by iteration."""
    model, images = served.model, image.unsqueeze(0)
    output, layers = inspect_layers(model, images)
    chosen = int(output.scores.argmax()) if label is None else check_label(model, label)
    classes, count = torch.tensor([chosen]), max(len(layer.couplings) for layer in layers)
    shares = None
    if all(is_normalized_over_parents(layer) for layer in layers):
        shares = [float(class_share(layers, classes, iteration)) for iteration in range(count)]
    return RoutingResponse(
        model=served.name,
        label=chosen,
        scores=output.scores[0].tolist(),
        image=encode_images(image),
        maps=[vote_maps(layers, classes, iteration)[0][0].tolist() for iteration in range(count)],
        frame=list(grid_extents(model, layers)[0]),
        share=shares,
        distances=_distances(model, images, layers, chosen),
    )


def _distances(model: Model, images: Tensor, layers: list[LayerState], label: int) -> VoteDistances | None:
    if not isinstance(layers[-1].routing, EMRouting):
        return None
    found = vote_histograms(model, images)
    weights = [iteration[label] for iteration in found["whole"]["weights"][0]]
    return VoteDistances(edges=found["whole"]["edges"], weights=weights, mean=found["mean_distance"])


def attack_image(served: ServedModel, image: Tensor, question: AttackRequest) -> AttackResponse:
    """Change the image within epsilon so that the model's answer, or the given one, is left."""
    model, images = served.model, image.unsqueeze(0)
    if served.info.labels_per_image > 1:
        raise TorchcapsError(f"{served.name} looks for two things in an image: an attack needs one right answer")
    with torch.no_grad():
        before = model(images).scores[0]
    label = int(before.argmax()) if question.label is None else check_label(model, question.label)
    settings = PGD if question.attack == "pgd" else {}
    with _random_numbers:
        found = create_attack(question.attack, **settings)(
            model, images, torch.tensor([label]), epsilon=question.epsilon, budget=MOST_PASSES
        )
    with torch.no_grad():
        after = model(found.images).scores[0]
    noise = found.images[0] - image
    largest = float(noise.abs().max())
    return AttackResponse(
        model=served.name,
        label=label,
        before=before.tolist(),
        after=after.tolist(),
        fooled=bool(found.success),
        image=encode_images(found.images[0]),
        noise=encode_images(0.5 + noise / max(2 * largest, 1e-12)),
        largest=largest,
        queries=found.queries,
    )


def check_label(model: Model, label: int) -> int:
    """A class that the model has."""
    if label >= model.classes:
        raise TorchcapsError(f"there is no class {label}: the model has {model.classes}, counted from 0")
    return label
