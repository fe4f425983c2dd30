"""Every transform with every routing: the model trains, or building it raises an error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.losses import margin_loss, one_hot
from torchcaps.models import create_model
from torchcaps.models.registry import LAYER
from torchcaps.routing import routings

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("capsnet", {"decoder": "none"}),
    "shared": ("capsnet", {"decoder": "none", "transform": "shared"}),
    "convolutional": ("g-capsnet-conv", {"decoder": "none"}),
    "three layers": ("g-capsnet-multi", {}),
    "per-channel": ("ar-capsnet", {"decoder": "none"}),
}
NO_ACTIVATIONS = {"convolutional", "three layers", "per-channel"}


def possible(body: str, routing: str) -> bool:
    if routings.get(routing).build(LAYER).needs_activation:
        return body not in NO_ACTIVATIONS
    return not (body == "per-channel" and routing.startswith("discriminative"))


@pytest.mark.parametrize("routing", routings.names())
@pytest.mark.parametrize("body", BODIES)
def test_every_combination_learns_a_batch_or_is_refused(body: str, routing: str) -> None:
    name, settings = BODIES[body]
    settings = {"size": "laptop", "filters": 8, "routing": routing, "image_size": 23, **settings}
    if not possible(body, routing):
        with pytest.raises(TorchcapsError):
            create_model(name, **settings)
        return
    model = create_model(name, **settings)
    images, labels = torch.rand(8, 1, 23, 23), torch.arange(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history = []
    for _ in range(12):
        output = model(images)
        loss = margin_loss(output.scores, one_hot(labels, 10))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.after_step(output, labels)
        history.append(loss.item())
    assert all(torch.tensor(history).isfinite())
    assert min(history[1:]) < history[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("routing", routings.names())
@pytest.mark.parametrize("body", BODIES)
def test_every_combination_runs_in_half_precision(body: str, routing: str, dtype: torch.dtype) -> None:
    if not possible(body, routing):
        pytest.skip("refused when the model is built")
    name, settings = BODIES[body]
    settings = {"size": "laptop", "filters": 8, "routing": routing, "image_size": 23, **settings}
    model, labels = create_model(name, **settings).to(dtype), torch.arange(4)
    output = model(torch.rand(4, 1, 23, 23).to(dtype))
    # The poses of the classes count too: the scores of some routings do not depend on the votes.
    (margin_loss(output.scores, one_hot(labels, 10)) + output.pose.square().mean()).backward()
    model.after_step(output, labels)
    assert output.scores.dtype == output.logits.dtype == dtype
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
    assert all(each.isfinite().all() and each.dtype == dtype for each in model.buffers() if each.is_floating_point())
