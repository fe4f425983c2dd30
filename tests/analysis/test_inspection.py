from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from torchcaps.analysis import inspect_layers
from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer
from torchcaps.models import create_model, models

SMALL = {
    "capsnet": {"filters": 8, "types": 2},
    "capsnet-l1": {"filters": 8, "types": 2},
    "aff-capsnet": {"filters": 8, "types": 2},
    "matrix-capsnet": {"filters": 4, "types": (2, 3, 2)},
    "g-capsnet-conv": {"filters": 8, "types": 2},
    "g-capsnet-multi": {"filters": 8, "types": (2, 2, 3)},
    "ar-capsnet": {"filters": 4, "types": 3, "capsule_size": 4},
    "ar-capsnet-cifar10": {"filters": 4, "types": 3, "capsule_size": 4, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_inspection_records_every_layer(name: str) -> None:
    channels, size, _ = models.get(name).image
    model = create_model(name, image_size=size, channels=channels, size="laptop", **SMALL[name])
    model.train()
    images = torch.rand(2, channels, size, size)
    output, layers = inspect_layers(model, images, votes=True)
    assert model.training, "the mode is put back"
    modules = [module for module in model.modules() if isinstance(module, CapsuleLayer)]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    torch.testing.assert_close(output.scores, model.eval()(images).scores, rtol=1e-4, atol=1e-5)
    assert len(layers) == len(modules)
    for state, module in zip(layers, modules, strict=True):
        shape = module.transform.shape
        expected = (2, shape.positions, shape.children, shape.parents)
        assert all(couplings.shape == expected for couplings in state.couplings)
        assert len(state.couplings) == getattr(module.routing, "iterations", 1)
        assert state.votes is not None
        assert state.votes.shape == (*expected, shape.size)
        assert state.child_index.shape[:2] == expected[1:3]
        again = module(state.children)
        torch.testing.assert_close(state.parents.pose, again.pose, rtol=1e-4, atol=1e-5)
    assert torch.equal(layers[-1].parents.pose.flatten(1, 3), output.pose)


@pytest.mark.parametrize("name", ["matrix-capsnet", "ar-capsnet", "g-capsnet-multi", "capsnet"])
def test_slots_are_the_children_that_their_votes_depend_on(name: str) -> None:
    """A vote of slot i at position p depends on the poses of its own children only."""
    channels, size, _ = models.get(name).image
    model = create_model(name, image_size=size, channels=channels, size="laptop", **SMALL[name]).eval()
    layer = next(module for module in model.modules() if isinstance(module, CapsuleLayer))
    _, layers = inspect_layers(model, torch.rand(1, channels, size, size))
    state = layers[0]
    pose = state.children.pose.double().requires_grad_()
    votes = layer.double().transform(state.children._replace(pose=pose))
    positions, slots = votes.shape[1:3]
    generator = torch.Generator().manual_seed(0)
    for position, slot in zip(
        [*torch.randint(positions, (12,), generator=generator).tolist(), 0, positions - 1],
        [*torch.randint(slots, (12,), generator=generator).tolist(), 0, slots - 1],
        strict=True,
    ):
        (slope,) = torch.autograd.grad(votes[0, position, slot].sum(), pose, retain_graph=True)
        touched = torch.nonzero(slope[0].abs().sum(3).flatten() > 0).flatten().tolist()
        behind = [child for child in state.child_index[position, slot].tolist() if child >= 0]
        assert touched == sorted(behind)


def test_a_model_without_capsule_layers_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="ConvNetAvg has no capsule layers"):
        inspect_layers(create_model("convnet-avg", size="laptop"), torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize("name", ["capsnet", "matrix-capsnet"])
def test_threads_are_independent(name: str) -> None:
    """Two inspections and a prediction of one model run their forward passes concurrently."""
    model = create_model(name, size="laptop", **SMALL[name]).train()
    batches = [torch.rand(count, 1, 28, 28) for count in (1, 2, 3)]
    expected = [inspect_layers(model, images, votes=True) for images in batches[:2]]
    together, training = threading.Barrier(3), []

    def meet(module: nn.Module, args: object, output: object) -> None:
        together.wait(timeout=30)
        training.append(any(each.training for each in model.modules()))
        together.wait(timeout=30)

    handle = model.primary.register_forward_hook(meet)
    with ThreadPoolExecutor(3) as threads:
        inspected = [threads.submit(inspect_layers, model, images, votes=True) for images in batches[:2]]
        predicted = threads.submit(model, batches[2])
        found = [each.result() for each in inspected]
        assert predicted.result().scores.shape == (3, 10)
    handle.remove()
    for (output, layers), (wanted, wanted_layers) in zip(found, expected, strict=True):
        torch.testing.assert_close(output.scores, wanted.scores)
        assert [layer.name for layer in layers] == [layer.name for layer in wanted_layers]
        for layer, other in zip(layers, wanted_layers, strict=True):
            torch.testing.assert_close(layer.votes, other.votes)
            torch.testing.assert_close(layer.couplings, other.couplings)
    assert training == [False] * 3
    assert model.training, "the last thread puts the mode back"
