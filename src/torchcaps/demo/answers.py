"""Compute the responses of the service from tensors. Only one thread at a time uses a model."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from torchcaps.analysis import inspect_layers, vote_maps
from torchcaps.analysis.couplings import (
    class_share,
    is_normalized_over_parents,
    vote_histograms,
    with_even_couplings,
)
from torchcaps.analysis.inspection import LayerState, grid_extents
from torchcaps.analysis.perturbation import move_dimensions
from torchcaps.attacks import create_attack
from torchcaps.demo.images import encode_images
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
from torchcaps.train.run_images import reconstruction_errors

PGD = {"steps": 10, "relative_step": 0.25}
MAX_PASSES = 45  # forward passes of an attack: at most a few seconds
# Attacks seed the global random number generator, so that two attacks at once would disturb each other.
_rng_lock = threading.Lock()


@torch.no_grad()
def predict_batch(served: ServedModel, asked: list[tuple[Tensor, list[str]]]) -> list[PredictResponse]:
    """Classify the images of several requests in one batch; each comes with what its response should include."""
    images = torch.stack([image for image, _ in asked])
    output = served.predict(images)
    reference = served.errors
    errors = None if reference is None else reconstruction_errors(served.model, images, output)
    names, probabilities = served.info.class_names, output.logits.softmax(1)
    responses = []
    for number, (image, include) in enumerate(asked):
        label, shares = int(output.scores[number].argmax()), probabilities[number].tolist()
        pose = output.pose if "pose" in include else None
        error = None if errors is None else float(errors[number])
        responses.append(
            PredictResponse(
                model=served.name,
                label=label,
                class_name=names[label],
                probability=shares[label],
                probabilities=dict(zip(names, shares, strict=True)),
                reconstruction_percentile=None if reference is None or error is None else reference.percentile(error),
                unusual=None if reference is None or error is None else reference.is_unusual(error),
                scores=output.scores[number].tolist() if "scores" in include else None,
                pose=None if pose is None else pose[number].tolist(),
                image=encode_images(image) if "image" in include else None,
            )
        )
    return responses


@torch.no_grad()
def reconstruct_pose(served: ServedModel, request: ReconstructRequest) -> ReconstructResponse:
    """Reconstruct an image from a pose; with a sweep, one for each perturbed dimension and step."""
    model, label = served.model, check_label(served.model, request.label)
    size = served.info.pose_size
    if [len(row) for row in request.pose] != [size] * model.classes:
        raise TorchcapsError(
            f"a pose of {served.name} must have {model.classes} rows of {size} numbers, as returned by predict"
        )
    pose = torch.tensor([request.pose])  # (1, classes, D)
    if request.sweep is not None:
        pose = move_dimensions(pose, label, reach=request.sweep.reach, steps=request.sweep.steps)
    unused = pose.new_zeros(len(pose), model.classes)  # a reconstruction only depends on the pose
    images = model.reconstruct(Output(unused, unused, pose), torch.full((len(pose),), label))
    if request.sweep is not None:
        images = images.view(-1, request.sweep.steps, *images.shape[1:])
    return ReconstructResponse(model=served.name, images=encode_images(images))


def routing_maps(served: ServedModel, image: Tensor, label: int | None) -> RoutingResponse:
    """Compute the vote maps of a class per iteration."""
    model, images = served.model, image.unsqueeze(0)
    output, layers = inspect_layers(model, images)
    chosen = int(output.scores.argmax()) if label is None else check_label(model, label)
    classes, count = torch.tensor([chosen]), max(len(layer.couplings) for layer in layers)
    shares = even_map = even_share = None
    if all(is_normalized_over_parents(layer) for layer in layers):
        shares = [float(class_share(layers, classes, iteration)) for iteration in range(count)]
        even = [with_even_couplings(layer) for layer in layers]
        even_map, even_share = vote_maps(even, classes, 0)[0][0].tolist(), float(class_share(even, classes, 0))
    return RoutingResponse(
        model=served.name,
        label=chosen,
        scores=output.scores[0].tolist(),
        image=encode_images(image),
        maps=[vote_maps(layers, classes, iteration)[0][0].tolist() for iteration in range(count)],
        frame=list(grid_extents(model, layers)[0]),
        share=shares,
        even_map=even_map,
        even_share=even_share,
        distances=_distances(model, images, layers, chosen),
    )


def _distances(model: Model, images: Tensor, layers: list[LayerState], label: int) -> VoteDistances | None:
    if not isinstance(layers[-1].routing, EMRouting):
        return None
    found = vote_histograms(model, images)
    weights = [iteration[label] for iteration in found["whole"]["weights"][0]]
    return VoteDistances(edges=found["whole"]["edges"], weights=weights, mean=found["mean_distance"])


def attack_image(served: ServedModel, image: Tensor, request: AttackRequest) -> AttackResponse:
    """Attack the image within epsilon, so that the model no longer predicts its own or the given class."""
    model, images = served.model, image.unsqueeze(0)
    if served.info.labels_per_image > 1:
        raise TorchcapsError(
            f"{served.name} predicts several labels per image, but an attack needs a single one: choose another model"
        )
    with torch.no_grad():
        before = model(images).scores[0]
    label = int(before.argmax()) if request.label is None else check_label(model, request.label)
    settings = PGD if request.attack == "pgd" else {}
    with _rng_lock:
        found = create_attack(request.attack, **settings)(
            model, images, torch.tensor([label]), epsilon=request.epsilon, budget=MAX_PASSES
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
    """Return the label if the model has such a class; otherwise raise an error."""
    if label >= model.classes:
        raise TorchcapsError(f"there is no class {label}: the model has classes 0 to {model.classes - 1}")
    return label
