"""The inner state of every capsule layer of a model, for given images.

A capsule layer does not store its couplings and votes. They are recorded during one forward pass, by
:func:`torchcaps.layers.capsule_layer.record_layers`. Several threads may inspect one model at the same time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.functional import safe_norm
from torchcaps.layers import CapsuleLayer, Capsules, ChannelConvTransform, Transform
from torchcaps.layers.capsule_layer import record_layers
from torchcaps.models import Model, Output
from torchcaps.routing import Routing

_mode_lock = threading.Lock()
_modes: dict[Model, tuple[int, bool]] = {}  # models being inspected: by how many threads, and their mode before


@dataclass(frozen=True)
class LayerState:
    """What went on inside one capsule layer.

    Shapes: ``children`` and ``parents`` as :class:`Capsules` on their grids; ``couplings`` one (B, P, I, J) per
    iteration; ``votes`` (B, P, I, J, D) if they were asked for; ``seen`` (P, I, M), which children stand behind slot i
    of position p, numbered by row, column and type, with -1 where a window hangs over the border. M is 1, but where a
    window is summed up into one vote per type (choi2019).
    """

    name: str
    routing: Routing
    children: Capsules
    parents: Capsules
    couplings: list[Tensor]
    seen: Tensor
    votes: Tensor | None = None

    @property
    def child_grid(self) -> tuple[int, int]:
        """Rows and columns of the children."""
        return self.children.pose.shape[1], self.children.pose.shape[2]

    def spread(self, values: Tensor) -> Tensor:
        """Bring a value per slot back to the children: (B, P, I) to (B, H, W, N), summed over the positions.

        Where several children stand behind one slot, its value is shared out equally.
        """
        present = self.seen >= 0  # (P, I, M)
        share = (values.unsqueeze(3) / present.sum(2, keepdim=True)).expand(-1, *present.shape)  # (B, P, I, M)
        shape = self.children.pose.shape[:4]
        flat = values.new_zeros(len(values), shape[1:].numel())
        flat.index_add_(1, self.seen[present], share[:, present])
        return flat.view(len(values), *shape[1:])


@torch.no_grad()
def inspect_layers(model: Model, images: Tensor, *, votes: bool = False) -> tuple[Output, list[LayerState]]:
    """Run the model in evaluation mode; its answer, and the state of each capsule layer from the lowest to the class.

    Args:
        images: (B, C, H, W) in [0, 1]. The plain form of routing is run, which stores all votes: keep B small.
        votes: also keep the votes.
    """
    names = {module: name for name, module in model.named_modules() if isinstance(module, CapsuleLayer)}
    if not names:
        raise TorchcapsError(f"{type(model).__name__} has no capsule layers to look into: choose a capsule model")
    with _eval_mode(model), record_layers(votes=votes) as calls:
        output: Output = model(images)
    states = []
    for call in calls:
        if call.layer not in names:  # of another model that this one calls without having it as a submodule
            continue
        seen = slot_children(call.layer.transform, call.children.pose.shape[1:4]).to(call.children.pose.device)
        couplings = [each.detach() for each in call.couplings]  # some routings hand out their parameters
        name, routing = names[call.layer], call.layer.routing
        states.append(LayerState(name, routing, call.children, call.parents, couplings, seen, call.votes))
    return output, states


@contextlib.contextmanager
def _eval_mode(model: Model) -> Iterator[None]:
    """Put a model into evaluation mode; the last thread that leaves restores the mode that the first one found."""
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
    """Which children (rows, columns, types) stand behind each slot: (P, I, M), -1 for padding."""
    numbers = torch.arange(shape.numel()).view(1, *shape)
    if not isinstance(transform, ChannelConvTransform):
        return transform.gather(numbers).squeeze(0).unsqueeze(2)
    kernel, types = transform.weight.shape[2:], shape[2]
    maps = (numbers + 1).permute(0, 3, 1, 2).float()  # (1, N, H, W), from 1, so that padding's 0 can be told apart
    windows = F.unfold(maps, tuple(kernel), padding=transform.padding, stride=transform.stride)
    return windows.view(types, -1, windows.shape[2]).permute(2, 0, 1).long() - 1


def presence(capsules: Capsules) -> Tensor:
    """How present each capsule is, (B, H, W, N): its activation, or its length where it has none."""
    return safe_norm(capsules.pose) if capsules.activation is None else capsules.activation
