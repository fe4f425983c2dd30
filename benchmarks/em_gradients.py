"""Gradients of matrix capsules with different numbers of iterations, at the same weights.

Trains a laptop-size network with two iterations for 200 steps of 32 MNIST digits. Then, without changing the weights,
it measures for 1, 2, 3 and 5 iterations: the norm of the gradient of each layer over small batches, its direction
compared with that of two iterations, and how one-hot the assignments are. Run: python -m benchmarks.em_gradients;
writes results/learning/gradients.json, which docs/performance.md shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.data import load_dataset, split_off
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.losses import one_hot, spread_loss
from torchcaps.models import create_model
from torchcaps.models.hinton2018 import MatrixCapsNet
from torchcaps.train import fit

TARGET = Path("results/learning/gradients.json")
ITERATIONS = (1, 2, 3, 5)
BATCHES, BATCH, MARGIN = 100, 8, 0.5
LAYERS = {
    "first convolution": "features.0.weight",
    "primary capsules": "primary.conv.weight",
    "first capsule layer": "capsules.layers.0.transform.weight",
    "second capsule layer": "capsules.layers.1.transform.weight",
    "class capsules": "capsules.layers.2.transform.transform.weight",
}


def build(iterations: int) -> MatrixCapsNet:
    model = create_model("matrix-capsnet", size="laptop", routing_options={"iterations": iterations})
    assert isinstance(model, MatrixCapsNet)
    return model


def gradients(model: MatrixCapsNet, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    spread_loss(model(images).scores, one_hot(labels, model.classes), margin=MARGIN).backward()
    named = dict(model.named_parameters())
    found = {layer: named[name].grad for layer, name in LAYERS.items()}
    return {layer: gradient.flatten().clone() for layer, gradient in found.items() if gradient is not None}


@torch.no_grad()
def largest_assignments(model: MatrixCapsNet, images: Tensor) -> list[float]:
    """For each capsule layer, the mean over children of the largest assignment to a parent of one position."""
    capsules = model.primary(model.features(model.preprocess(images)))
    found = []
    for layer in model.capsules:
        transform, routing = layer.transform, layer.routing
        votes, active = transform(capsules), transform.gather(capsules.activation)
        routed = routing(votes, active, child_index=transform.child_index, nonlinearity=lambda pose: pose)
        share = routed.couplings[-1] / routed.couplings[-1].sum(3, keepdim=True).clamp_min(1e-12)
        weight = routed.couplings[-1].sum(3)  # of the child's assignment to this position
        found.append(float((share.amax(3) * weight).sum() / weight.sum()))
        capsules = layer(capsules)
    return found


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    checked, training = split_off(load_dataset("mnist", "train"), 59_000, seed=0)
    trained = build(2)
    schedule = {"schedule": "one-cycle:0.01:0.1", "clip_norm": 1.0}
    fit(trained, training, checked, steps=200, batch_size=32, loss="spread", augmentation="", seed=0, **schedule)
    rows: list[dict[str, Any]] = []
    batches = [checked.batch(torch.arange(BATCH * k, BATCH * (k + 1))) for k in range(BATCHES)]
    reference: list[dict[str, Tensor]] = []
    for iterations in (2, *[each for each in ITERATIONS if each != 2]):
        model = build(iterations)
        model.load_state_dict(trained.state_dict())
        found = [gradients(model, batch.images, batch.labels) for batch in batches]
        reference = reference or found
        assignments = largest_assignments(model, batches[0].images)
        for layer in LAYERS:
            norms = torch.stack([each[layer].norm() for each in found])
            cosine = [torch.cosine_similarity(a[layer], b[layer], dim=0) for a, b in zip(found, reference, strict=True)]
            mean = torch.stack([each[layer] for each in found]).mean(0).norm()
            rows.append(
                {
                    "iterations": iterations,
                    "layer": layer,
                    "median_norm": float(norms.median()),
                    "largest_norm": float(norms.max()),
                    "signal": float(mean / norms.square().mean().sqrt()),
                    "cosine_with_2": float(torch.stack(cosine).median()),
                }
            )
        print(f"{iterations} iterations done", flush=True)
        rows[-1]["largest_assignments"] = assignments
    rows.sort(key=lambda row: row["iterations"])
    write_json(TARGET, {"rows": rows, "environment": describe_environment()})


if __name__ == "__main__":
    main()
