"""The straightforward implementations give the same results as the models."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.bench.straightforward import BroadcastTransform
from torchcaps.bench.straightforward_routings import (
    WideDynamicRouting,
    WideEMRouting,
    WideInvertedAttentionRouting,
    WideSelfAttentionRouting,
    WideSelfRouting,
    WideVariationalBayesRouting,
)
from torchcaps.bench.workload import NetSpec, Workload
from torchcaps.layers import CapsuleLayer

SMALL = {"filters": 8, "types": 2, "hidden": (16, 16)}
MATRIX = {"filters": 4, "types": (2, 3, 2)}
NETS = {
    "capsnet": NetSpec("capsnet", batch=3, options=SMALL),
    "aff-capsnet-dr": NetSpec("aff-capsnet-dr", batch=3, options=SMALL),
    "capsnet-l2": NetSpec("capsnet-l2", batch=3, options=SMALL),
    "g-capsnet-conv": NetSpec("g-capsnet-conv", batch=3, options=SMALL),
    "g-capsnet-multi": NetSpec("g-capsnet-multi", batch=2, options={"filters": 4, "types": (2, 2, 2)}),
    "matrix-capsnet": NetSpec("matrix-capsnet", batch=3, classes=5, options=MATRIX),
    "vector poses": NetSpec("matrix-capsnet", batch=3, options={**MATRIX, "pose": "vector"}),
    "dynamic, windows": NetSpec("matrix-capsnet", batch=3, options={**MATRIX, "routing": "dynamic"}),
    "vb-capsnet": NetSpec("vb-capsnet-tiny", batch=8, channels=2, classes=5, options={"filters": 4, "types": (3,)}),
    "inverted-capsnet": NetSpec("inverted-capsnet-560k", batch=2, options={"widths": (4, 8), "types": (2, 2, 2)}),
    "sr-capsnet": NetSpec("sr-capsnet", batch=3, options={"width": 2, "types": 2}),
    "efficient-capsnet": NetSpec("efficient-capsnet", batch=3, options={"filters": (4, 4, 4), "types": 2}),
    "ar-capsnet": NetSpec("ar-capsnet", batch=3, options={"filters": 4, "types": 2, "capsule_size": 6, "dropout": 0.0}),
}


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_same_answer_and_gradient_as_the_model(net: NetSpec) -> None:
    ours, theirs = Workload(net, "plain"), Workload(net, "straightforward")
    (our_loss, our_answer), (their_loss, their_answer) = ours.forward(), theirs.forward()
    assert our_answer is not None
    assert their_answer is not None
    torch.testing.assert_close(their_answer.scores, our_answer.scores, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(their_answer.pose, our_answer.pose, atol=1e-4, rtol=1e-4)
    ours.backward(our_loss)
    theirs.backward(their_loss)
    for mine, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(other.grad, mine.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "routing"),
    [
        ("capsnet", WideDynamicRouting),
        ("matrix-capsnet", WideEMRouting),
        ("vb-capsnet", WideVariationalBayesRouting),
        ("inverted-capsnet", WideInvertedAttentionRouting),
        ("sr-capsnet", WideSelfRouting),
        ("efficient-capsnet", WideSelfAttentionRouting),
    ],
)
def test_every_layer_is_written_out(name: str, routing: Any) -> None:
    layers = [
        part for part in Workload(NETS[name], "straightforward").model.modules() if isinstance(part, CapsuleLayer)
    ]
    assert layers
    assert all(isinstance(layer.transform, BroadcastTransform) for layer in layers)
    assert all(isinstance(layer.routing, routing) for layer in layers)
