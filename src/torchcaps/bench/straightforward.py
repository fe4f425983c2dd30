"""Capsule layers as most public implementations write them: a baseline that is correct and uses much memory.

W is repeated for every image and multiplied by broadcasting, routing logits have the size of the votes, EM keeps
temporaries of that size, and the convolution for each pair of capsule types is a Python loop. Weights are those of the
given layer; a test compares outputs and gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.functional import softmax_over_parents
from torchcaps.layers import (
    CapsuleLayer,
    Capsules,
    ChannelConvTransform,
    ConvTransform,
    CoordinateAddition,
    DenseTransform,
    PositionSharedTransform,
    SharedTransform,
    Transform,
)
from torchcaps.models import Model
from torchcaps.routing import Routed, Routing
from torchcaps.routing.base import Nonlinearity
from torchcaps.routing.dynamic import DynamicRouting
from torchcaps.routing.em import EMRouting


def use_straightforward_layers(model: Model) -> None:
    """Replace transform and routing in a model's capsule layers where there is a straightforward form."""
    for layer in model.modules():
        if isinstance(layer, CapsuleLayer):
            layer.transform = BroadcastTransform(layer.transform)
            if isinstance(layer.routing, DynamicRouting):
                layer.routing = WideDynamicRouting(layer.routing)
            elif isinstance(layer.routing, EMRouting) and layer.routing.activation == "mdl":
                layer.routing = WideEMRouting(layer.routing)


class BroadcastTransform(Transform):
    """The votes of a transform, by one matrix product for each image, child and parent."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform.child_index)
        self.shape, self.grid, self.transform = transform.shape, transform.grid, transform

    def gather(self, values: Tensor) -> Tensor:
        return self.transform.gather(values)

    def forward(self, capsules: Capsules) -> Tensor:
        return broadcast_votes(self.transform, capsules)


def broadcast_votes(transform: Transform, capsules: Capsules) -> Tensor:
    """Votes (B, P, I, J, D) of a transform."""
    if isinstance(transform, CoordinateAddition):
        return broadcast_votes(transform.transform, capsules) + transform.offset
    if isinstance(transform, ChannelConvTransform):
        return looped_votes(transform, capsules)
    seen, parents = transform.gather(capsules.pose), transform.shape.parents  # (B, P, I, D)
    if isinstance(transform, DenseTransform | SharedTransform):
        weight = transform.weight.reshape(-1, transform.weight.shape[-2], parents, transform.shape.size)
        return _multiplied(seen.unsqueeze(3), weight)
    if isinstance(transform, ConvTransform | PositionSharedTransform):
        rows, columns = transform.child_pose
        matrices, right = seen.unflatten(3, (rows, columns)), transform.multiply == "right"
        matrices = matrices if right else matrices.transpose(3, 4)
        weight = transform.weight.unflatten(2, (parents, -1))  # (N, q, J, q')
        votes = _multiplied(matrices, weight)
        return votes if right else votes.unflatten(4, (matrices.shape[3], -1)).transpose(4, 5).flatten(4)
    return transform(capsules)  # type: ignore[no-any-return]


def _multiplied(matrices: Tensor, weight: Tensor) -> Tensor:
    """(B, P, I, p, q) times (N, q, J, q') for each image, position and parent: (B, P, I, J, p*q')."""
    batch, positions, children = matrices.shape[:3]
    weight = weight.transpose(1, 2).repeat(children // len(weight), 1, 1, 1)  # (I, J, q, q')
    for_all = weight.repeat(batch, positions, 1, 1, 1, 1)  # (B, P, I, J, q, q'): the copies
    return (matrices.unsqueeze(3) @ for_all).flatten(4)


def looped_votes(transform: ChannelConvTransform, capsules: Capsules) -> Tensor:
    """Votes by one convolution for each pair of capsule types, in a loop."""
    types, parents, size = transform.shape.children, transform.shape.parents, transform.shape.size
    weights = transform.weight.unflatten(0, (types, parents, size))
    biases = transform.bias.unflatten(0, (types, parents, size))
    votes = []
    for child in range(types):
        maps = capsules.pose[:, :, :, child].permute(0, 3, 1, 2)  # (B, D_child, H, W)
        for parent in range(parents):
            place = weights[child, parent], biases[child, parent], transform.stride, transform.padding
            votes.append(F.conv2d(maps, *place).flatten(2).transpose(1, 2))  # (B, P, D)
    return torch.stack(votes, 2).view(len(capsules.pose), -1, types, parents, size)


class WideDynamicRouting(Routing):
    """Dynamic routing whose logits are repeated for every pose dimension."""

    def __init__(self, routing: DynamicRouting) -> None:
        super().__init__(routing.shape)
        self.iterations = routing.iterations

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        logits = torch.zeros_like(votes)  # (B, P, I, J, D)
        for iteration in range(self.iterations):
            if child_index is None:
                couplings = logits.softmax(3)
            else:
                each = [softmax_over_parents(part, child_index) for part in logits.unbind(4)]
                couplings = torch.stack(each, 4)
            pose = (couplings * votes).sum(2, keepdim=True)  # (B, P, 1, J, D)
            if iteration < self.iterations - 1:
                logits = logits + (votes * nonlinearity(pose)).sum(4, keepdim=True)
        return Routed(pose.squeeze(2))


class WideEMRouting(Routing):
    """EM routing that computes densities elementwise, for all votes at once."""

    needs_activation = True

    def __init__(self, routing: EMRouting) -> None:
        super().__init__(routing.shape)
        self.inner = routing

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        assert activation is not None  # checked by the base class
        inner, size = self.inner, votes.shape[4]
        assignment = softmax_over_parents(torch.zeros_like(votes[..., 0]), child_index)
        for iteration in range(inner.iterations):
            weights = (assignment * activation.unsqueeze(3)).unsqueeze(4).repeat(1, 1, 1, 1, size)  # as wide as votes
            mass = weights.sum(2, keepdim=True)  # (B, P, 1, J, D)
            weights = (weights + inner.mass_floor / votes.shape[2]) / (mass + inner.mass_floor)
            mean = (weights * votes).sum(2, keepdim=True)
            variance = (weights * (votes - mean) ** 2).sum(2, keepdim=True) + inner.variance_floor
            cost = (inner.beta_u.view(-1, 1) + variance.sqrt().log()) * mass / inner.expected_mass
            active = torch.sigmoid(inner.temperatures[iteration] * (inner.beta_a - cost.sum(4)))  # (B, P, 1, J)
            if iteration < inner.iterations - 1:
                density = -((votes - mean) ** 2) / (2 * variance) - variance.sqrt().log() - 0.5 * math.log(2 * math.pi)
                joint = density.sum(4) + (active + 1e-30).log()  # (B, P, I, J)
                assignment = softmax_over_parents(joint, child_index)
        return Routed(mean.squeeze(2), active.squeeze(2))
