"""Capsule layers as most public implementations write them: a baseline that is correct and uses much memory.

W is repeated for every image and multiplied by broadcasting, and the convolution for each pair of capsule types is a
Python loop; ``straightforward_routings`` has the routings. Weights are those of the given layer; a test compares
outputs and gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.bench.straightforward_routings import STRAIGHTFORWARD
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


def use_straightforward_layers(model: Model) -> None:
    """Replace transform and routing in a model's capsule layers where there is a straightforward form."""
    for layer in model.modules():
        if isinstance(layer, CapsuleLayer):
            layer.transform = BroadcastTransform(layer.transform)
            for routing, form in STRAIGHTFORWARD.items():
                if type(layer.routing) is routing and form.applies(layer.routing):
                    layer.routing = form(layer.routing)


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
