from __future__ import annotations

import pytest
import torch

from tests.reference import routings as reference
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Capsules, ConvTransform, NoVotes
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.nonlinearity import identity
from torchcaps.models import create_model
from torchcaps.routing import SelfRouting, create_routing
from torchcaps.routing.base import LayerShape

SHAPE = LayerShape(2, 5, 3, 6, activations=True, child_size=4)


def test_agrees_with_the_reference_at_every_position() -> None:
    torch.manual_seed(0)
    routing = SelfRouting(SHAPE).double()
    torch.nn.init.normal_(routing.weight)
    torch.nn.init.normal_(routing.bias)
    votes, poses = torch.randn(2, 2, 5, 3, 6).double(), torch.randn(2, 2, 5, 4).double()
    activation = torch.rand(2, 2, 5).double()
    routed = routing(votes, activation, child_pose=poses)
    assert routed.activation is not None
    for image in range(2):
        for position in range(2):
            pose, active, couplings = reference.self_routing(
                votes[image, position].tolist(),
                poses[image, position].tolist(),
                activation[image, position].tolist(),
                routing.weight.tolist(),
                routing.bias.tolist(),
            )
            at = (image, position)
            torch.testing.assert_close(routed.pose[at], torch.tensor(pose).double(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(routed.activation[at], torch.tensor(active).double(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(routed.couplings[0][at], torch.tensor(couplings).double(), rtol=1e-5, atol=1e-6)


def test_couplings_depend_on_the_child_s_own_pose_only() -> None:
    routing = SelfRouting(SHAPE)
    votes, poses, activation = torch.randn(1, 2, 5, 3, 6), torch.randn(1, 2, 5, 4), torch.rand(1, 2, 5)
    changed = poses.clone()
    changed[0, 1, 3] += 1
    before, after, others = (
        routing(each, activation, child_pose=own).couplings[0]
        for each, own in ((votes, poses), (votes, changed), (votes + 1, poses))
    )
    assert ((before - after).abs().amax(3) > 1e-6).nonzero().tolist() == [[0, 1, 3]]
    assert torch.equal(before, others)


def test_activations_are_shares_of_the_active_children() -> None:
    routing = SelfRouting(SHAPE)
    votes, poses, activation = torch.randn(2, 2, 5, 3, 6), torch.randn(2, 2, 5, 4), torch.rand(2, 2, 5)
    activation[:, :, 2] = 0
    routed = routing(votes, activation, child_pose=poses)
    silenced = votes.clone()
    silenced[:, :, 2] = 100.0
    assert routed.activation is not None
    torch.testing.assert_close(routed.activation.sum(2), torch.ones(2, 2))
    torch.testing.assert_close(routing(silenced, activation, child_pose=poses).pose, routed.pose, rtol=1e-3, atol=1e-3)


def test_a_layer_hands_the_children_of_each_position_to_the_routing() -> None:
    transform = ConvTransform((4, 4), 2, 3, child_pose=(1, 4), parent_pose=(1, 6), kernel=3)
    shape = LayerShape(**(vars(transform.shape) | {"activations": True}))
    layer = CapsuleLayer(transform, SelfRouting(shape), identity)
    capsules = Capsules(torch.randn(2, 4, 4, 2, 4), torch.rand(2, 4, 4, 2))
    parents, couplings = layer(capsules), []
    layer(capsules, couplings=couplings)
    assert parents.pose.shape == (2, 2, 2, 3, 6)
    window = capsules.pose[:, 1:4, 0:3].reshape(2, 18, 4)  # of the third position
    logits = torch.einsum("bic,icj->bij", window, layer.routing.weight) + layer.routing.bias
    torch.testing.assert_close(couplings[0][:, 2], logits.softmax(2))


def test_activations_without_votes() -> None:
    transform = NoVotes(8, 3, 4)
    shape = LayerShape(**(vars(transform.shape) | {"activations": True}))
    capsules = Capsules(torch.randn(2, 2, 2, 2, 4), torch.rand(2, 2, 2, 2))
    parents = CapsuleLayer(transform, SelfRouting(shape), identity)(capsules)
    assert parents.pose.shape == (2, 1, 1, 3, 0)
    assert parents.activation is not None
    torch.testing.assert_close(parents.activation.sum(3), torch.ones(2, 1, 1))


def test_what_is_missing_is_said_in_one_sentence() -> None:
    with pytest.raises(TorchcapsError, match="needs the children's activations"):
        create_routing("self-routing", LayerShape(1, 5, 3, 6, child_size=4))
    with pytest.raises(TorchcapsError, match="reads the poses of single children"):
        create_routing("self-routing", LayerShape(1, 5, 3, 6, activations=True))
    with pytest.raises(TorchcapsError, match=r"expects the children's poses \(2, 2, 5, 4\), got None"):
        SelfRouting(SHAPE)(torch.randn(2, 2, 5, 3, 6), torch.rand(2, 2, 5))
    with pytest.raises(TorchcapsError, match="routing 'dynamic' needs votes to score the classes"):
        create_model("sr-capsnet", routing="dynamic", votes="none")
    with pytest.raises(TorchcapsError, match="matrix votes need a square capsule_size"):
        create_model("sr-capsnet", routing="em", capsule_size=8)
