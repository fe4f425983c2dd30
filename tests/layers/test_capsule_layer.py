from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.reference.competition import windows
from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer, Capsules, ConvTransform, SharedTransform, capsule_layer
from torchcaps.layers.nonlinearity import identity
from torchcaps.routing import DynamicRouting, create_routing, routings


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
    layer = em_layer(recompute=True)
    with use_kernels("plain"):  # the fused form stores no votes
        whole = layer(Capsules(pose, activation))
        slopes = torch.autograd.grad(whole.pose.square().sum() + whole.activation.sum(), pose)
        monkeypatch.setattr(capsule_layer, "MAX_VOTES", 2 * 12 * 18 * 3 * 16)
        seen: list[int] = []
        layer.routing.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
        made = layer(Capsules(pose, activation))
        assert seen == [2, 2, 1]
        torch.testing.assert_close((made.pose, made.activation), (whole.pose, whole.activation))
        parts = torch.autograd.grad(made.pose.square().sum() + made.activation.sum(), pose)
        torch.testing.assert_close(parts, slopes)
        with torch.no_grad():
            torch.testing.assert_close(layer(Capsules(pose, activation)).pose, whole.pose)


@pytest.mark.parametrize("routing", routings.names())
def test_layers_from_sizes(routing: str) -> None:
    active = torch.rand(2, 5, 5, 4)
    children = Capsules(torch.randn(2, 5, 5, 4, 8, requires_grad=True), active)
    conv = CapsuleLayer.conv((5, 5), 4, 8, 3, 6, kernel=3, stride=2, routing=routing)
    dense = CapsuleLayer.dense(2 * 2 * 3, 6, 10, 16, routing=routing)
    hidden = conv(children)
    assert hidden.pose.shape == (2, *conv.transform.grid, 3, 6)
    parents = dense(hidden)
    assert parents.pose.shape == (2, 1, 1, 10, 16)
    parents.pose.square().sum().backward()
    assert children.pose.grad is not None
    assert children.pose.grad.abs().sum() > 0
    assert (parents.activation is not None) == dense.routing.gives_activation
    assert dense.nonlinearity is (identity if dense.routing.gives_activation else squash)


def test_layers_from_sizes_take_classes_functions_and_settings() -> None:
    options = {"iterations": 2}
    layer = CapsuleLayer.dense(6, 4, 3, 5, routing=DynamicRouting, routing_options=options, transform="shared")
    assert layer.routing.iterations == 2
    assert isinstance(layer.transform, SharedTransform)
    assert CapsuleLayer.dense(6, 4, 3, 5, nonlinearity=torch.tanh).nonlinearity is torch.tanh
    matrices = CapsuleLayer.conv((5, 5), 2, (4, 4), 3, (4, 4), kernel=3, routing="em")
    assert matrices.transform.weight.shape == (18, 4, 12)
    for call, message in (
        (lambda: CapsuleLayer.dense(6, 4, 3, 5, routing="dinamic"), "did you mean 'dynamic'"),
        (lambda: CapsuleLayer.dense(6, 4, 3, 5, nonlinearity="sqash"), "nonlinearity 'sqash' is unknown"),
        (lambda: CapsuleLayer.dense(6, 4, 3, 5, transform="conv"), "transform 'conv' is unknown"),
        (lambda: CapsuleLayer.dense(6, 4, 3, 5, routing_options={"steps": 2}), "does not take these settings"),
        (lambda: CapsuleLayer.conv((5, 5), 2, 4, 3, 4, kernel=6), "does not fit 5x5 capsules"),
        (lambda: matrices(Capsules(torch.zeros(1, 5, 5, 2, 16))), "needs the children's activations"),
    ):
        with pytest.raises(TorchcapsError, match=message):
            call()


@pytest.mark.parametrize("routing", ["dynamic", "em", "uniform"])
def test_under_autocast_the_fused_routing_computes_in_float32(routing: str) -> None:
    layer = CapsuleLayer.dense(24, 8, 5, 4, routing=routing)
    pose, activation = torch.randn(8, 2, 2, 6, 8), torch.rand(8, 2, 2, 6)
    half = Capsules(pose.bfloat16().requires_grad_(), activation.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        routed = layer._route_factors(half)
    assert routed is not None, "the votes were stored"
    exact = layer(Capsules(half.pose.detach().float(), half.activation.float())).pose  # type: ignore[union-attr]
    assert routed.pose.dtype == torch.float32
    torch.testing.assert_close(layer.nonlinearity(routed.pose), exact.flatten(1, 2))
    routed.pose.square().sum().backward()
    assert half.pose.grad is not None
    assert half.pose.grad.isfinite().all()
