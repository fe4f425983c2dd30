"""Internal state (couplings, votes, capsules) of every capsule layer of a model, and receptive fields of capsules.

A capsule layer does not store its couplings and votes. They are recorded during one forward pass by
:func:`torchcaps.layers.capsule_layer.record_layers`. Several threads may inspect one model at the same time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.functional import safe_norm
from torchcaps.layers import CapsuleLayer, Capsules, ChannelConvTransform, Transform
from torchcaps.layers.capsule_layer import record_layers
from torchcaps.models import Model, Output
from torchcaps.routing import Routing

_mode_lock = threading.Lock()
_modes: dict[Model, tuple[int, bool]] = {}  # inspected model: number of threads, previous training mode


@dataclass(frozen=True)
class LayerState:
    """Internal state of one capsule layer during a forward pass.

    ``child_index`` maps slot i of parent position p to indices of the children (row, column, type flattened), with -1
    for padding. M is 1 except where a window is summed into one vote per type (choi2019).

    Shapes: ``children`` and ``parents`` are :class:`Capsules` on their grids; ``couplings`` holds one (B, P, I, J) per
    iteration; ``votes`` is (B, P, I, J, D) or None; ``child_index`` is (P, I, M).
    """

    name: str
    routing: Routing
    children: Capsules
    parents: Capsules
    couplings: list[Tensor]
    child_index: Tensor
    votes: Tensor | None = None

    @property
    def child_grid(self) -> tuple[int, int]:
        """Rows and columns of the grid of children."""
        return self.children.pose.shape[1], self.children.pose.shape[2]

    def scatter_to_children(self, values: Tensor) -> Tensor:
        """Sum a value per slot over each child's slots: (B, P, I) to (B, H, W, N).

        If a slot has several children, each gets an equal part of its value.
        """
        present = self.child_index >= 0  # (P, I, M)
        share = (values.unsqueeze(3) / present.sum(2, keepdim=True)).expand(-1, *present.shape)  # (B, P, I, M)
        shape = self.children.pose.shape[:4]
        flat = values.new_zeros(len(values), shape[1:].numel())
        flat.index_add_(1, self.child_index[present], share[:, present])
        return flat.view(len(values), *shape[1:])


@torch.no_grad()
def inspect_layers(model: Model, images: Tensor, *, votes: bool = False) -> tuple[Output, list[LayerState]]:
    """Run the model in evaluation mode; return its output and the state of each capsule layer, lowest first.

    Args:
        images: (B, C, H, W) in [0, 1]. Keep B small: routing runs without fused kernels and stores all votes.
        votes: also return the votes.
    """
    names = {module: name for name, module in model.named_modules() if isinstance(module, CapsuleLayer)}
    if not names:
        raise TorchcapsError(f"{type(model).__name__} has no capsule layers to inspect: choose a capsule model")
    with _eval_mode(model), record_layers(votes=votes) as calls:
        output: Output = model(images)
    states = []
    for call in calls:
        if call.layer not in names:  # belongs to another model that this one calls
            continue
        index = slot_children(call.layer.transform, call.children.pose.shape[1:4]).to(call.children.pose.device)
        couplings = [each.detach() for each in call.couplings]  # some routings return their parameters
        name, routing = names[call.layer], call.layer.routing
        states.append(LayerState(name, routing, call.children, call.parents, couplings, index, call.votes))
    return output, states


@contextlib.contextmanager
def _eval_mode(model: Model) -> Iterator[None]:
    """Set evaluation mode. The last thread to leave restores the mode that the first one found."""
    with _mode_lock:
        threads, was_training = _modes.get(model, (0, model.training))
        _modes[model] = threads + 1, was_training
        model.eval()
    try:
        yield
    finally:
        with _mode_lock:
            threads, was_training = _modes.pop(model)
            if threads > 1:
                _modes[model] = threads - 1, was_training
            else:
                model.train(was_training)


def slot_children(transform: Transform, shape: torch.Size) -> Tensor:
    """Return the indices of the children of each slot, (P, I, M), with -1 for padding. ``shape`` is (H, W, N)."""
    numbers = torch.arange(shape.numel()).view(1, *shape)
    if not isinstance(transform, ChannelConvTransform):
        return transform.gather(numbers).squeeze(0).unsqueeze(2)
    kernel, types = transform.weight.shape[2:], shape[2]
    maps = (numbers + 1).permute(0, 3, 1, 2).float()  # (1, N, H, W), counted from 1: padding is 0
    windows = F.unfold(maps, tuple(kernel), padding=transform.padding, stride=transform.stride)
    return windows.view(types, -1, windows.shape[2]).permute(2, 0, 1).long() - 1


def presence(capsules: Capsules) -> Tensor:
    """Return the presence of each capsule, (B, H, W, N): its activation, or its length if it has no activation."""
    return safe_norm(capsules.pose) if capsules.activation is None else capsules.activation


Extent = tuple[float, float, float, float]  # left, right, bottom, top in pixels; the origin is the top left corner


def primary_centers(model: Model, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the receptive field centers of the rows and columns of the primary capsules, in pixels.

    Each convolution below them multiplies the step of the grid by its stride and moves the first center by half its
    kernel minus its padding. A model without convolutions in ``features`` and ``primary`` gets an even grid, and so do
    the feature maps of a backbone.
    """
    stages = [getattr(model, name, None) for name in ("features", "primary")]
    convolutions = [
        module
        for stage in stages
        if isinstance(stage, nn.Module)
        for module in stage.modules()
        if isinstance(module, nn.Conv2d)
    ]
    centers = []
    for axis in (0, 1):
        below = getattr(model.backbone, "feature_shape", model.image_shape)[1 + axis]
        step = model.image_shape[1 + axis] / below
        start = step / 2
        for convolution in convolutions:
            kernel, padding = convolution.kernel_size[axis], convolution.padding
            pad = padding[axis] if isinstance(padding, tuple) else (kernel - 1) / 2  # "same"
            start += ((kernel - 1) / 2 - pad) * step
            step *= convolution.stride[axis]
        if not convolutions:
            step = model.image_shape[1 + axis] / grid[axis]
            start = step / 2
        centers.append(start + step * torch.arange(grid[axis]))
    return centers[0], centers[1]


def grid_extents(model: Model, layers: list[LayerState]) -> list[Extent]:
    """Return the extent on the image of the grid of children of each layer.

    The center of a parent is the mean of the centers of its children.
    """
    rows, columns = primary_centers(model, layers[0].child_grid)
    extents = []
    for layer in layers:
        extents.append((*_span(columns, model.image_shape[2]), *reversed(_span(rows, model.image_shape[1]))))
        _, width = layer.child_grid
        present = layer.child_index.flatten(1) >= 0  # (P, I*M)
        places = layer.child_index.flatten(1).clamp_min(0).cpu() // layer.children.pose.shape[3]
        count = present.sum(1).cpu()
        grid = layer.parents.pose.shape[1:3]
        rows = ((rows[places // width] * present.cpu()).sum(1) / count).view(grid)[:, 0]
        columns = ((columns[places % width] * present.cpu()).sum(1) / count).view(grid)[0]
    return extents  # type: ignore[return-value]


def _span(centers: Tensor, side: int) -> tuple[float, float]:
    """Return the outer edges of the first and the last cell; the whole side for a grid of one cell."""
    if len(centers) < 2:
        return 0.0, float(side)
    half = float(centers[-1] - centers[0]) / (len(centers) - 1) / 2
    return float(centers[0]) - half, float(centers[-1]) + half
