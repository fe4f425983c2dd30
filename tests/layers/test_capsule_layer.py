from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.reference.competition import windows
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer, Capsules, ConvTransform, capsule_layer
from torchcaps.routing import create_routing


def em_layer(**options: object) -> CapsuleLayer:
    transform = ConvTransform((6, 5), 2, 3, kernel=3)
    routing = create_routing("em", replace(transform.shape, activations=True), **options)
    return CapsuleLayer(transform, routing, nn.Identity())


def test_the_routing_gets_the_activation_of_the_child_that_votes() -> None:
    layer = em_layer()
    capsules = Capsules(torch.randn(2, 6, 5, 2, 16), torch.rand(2, 6, 5, 2))
    assert capsules.activation is not None
    seen = torch.tensor(
        [[[image[c].item() for c in slots] for slots in windows(6, 5, 2, 3, 1)] for image in capsules[1]]
    )
    expected = layer.routing(
        layer.transform(capsules), seen, child_index=layer.transform.child_index, nonlinearity=nn.Identity()
    )
    got = layer(capsules)
    torch.testing.assert_close(got.pose, expected.pose.view(2, 4, 3, 3, 16))
    torch.testing.assert_close(got.activation, expected.activation.view(2, 4, 3, 3))


def test_couplings_come_on_request() -> None:
    layer = em_layer()
    couplings: list[Tensor] = []
    layer(Capsules(torch.randn(2, 6, 5, 2, 16), torch.rand(2, 6, 5, 2)), couplings)
    assert [tuple(each.shape) for each in couplings] == [(2, 12, 18, 3)] * 3


def test_recomputing_gives_the_same_and_keeps_no_votes() -> None:
    torch.manual_seed(0)
    pose, activation = torch.randn(2, 6, 5, 2, 16, requires_grad=True), torch.rand(2, 6, 5, 2)
    found, kept = [], []
    for options in ({}, {"recompute": True}, {"recompute": True, "iterations": 5}):
        layer = em_layer(**options)
        layer.transform.load_state_dict(
            {name: torch.ones_like(it) for name, it in layer.transform.state_dict().items()}
        )
        sizes: list[int] = []

        def note(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with use_kernels("plain"), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            made = layer(Capsules(pose, activation))
            kept.append(sum(sizes))
            found.append((made.pose, *torch.autograd.grad(made.activation.sum(), pose)))
    torch.testing.assert_close(found[0], found[1])
    votes = 2 * 12 * 18 * 3 * 16
    assert kept[0] > 5 * votes
    assert kept[1] == kept[2] < votes


def test_recomputing_takes_some_images_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    pose, activation = torch.randn(5, 6, 5, 2, 16, requires_grad=True), torch.rand(5, 6, 5, 2)
    layer = em_layer(activation="mixing", recompute=True)  # which has no fused form
    whole = layer(Capsules(pose, activation))
    slopes = torch.autograd.grad(whole.pose.square().sum() + whole.activation.sum(), pose)
    monkeypatch.setattr(capsule_layer, "MOST_VOTES", 2 * 12 * 18 * 3 * 16)
    seen: list[int] = []
    layer.routing.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    made = layer(Capsules(pose, activation))
    assert seen == [2, 2, 1]
    torch.testing.assert_close((made.pose, made.activation), (whole.pose, whole.activation))
    parts = torch.autograd.grad(made.pose.square().sum() + made.activation.sum(), pose)
    torch.testing.assert_close(parts, slopes)
    with torch.no_grad():
        torch.testing.assert_close(layer(Capsules(pose, activation)).pose, whole.pose)
