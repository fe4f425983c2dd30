"""Couplings, votes and capsule activity, compared with loop references."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.reference import analysis as reference
from torchcaps.analysis import (
    coupling_entropy,
    inspect_layers,
    measure_activity,
    propagate_couplings,
    vote_histograms,
    vote_maps,
)
from torchcaps.analysis.couplings import CapsuleActivity, class_share, vote_distances
from torchcaps.analysis.inspection import grid_extents, presence, primary_centers
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, create_model

MATRIX = {"filters": 4, "types": (2, 3, 2)}


def small(name: str, **options: object) -> Model:
    return create_model(name, size="laptop", classes=4, **options).eval()


KINDS = {
    "dynamic": ("capsnet", {"filters": 8, "types": 2}),
    "em": ("matrix-capsnet", MATRIX),
    "uniform": ("matrix-capsnet", {**MATRIX, "routing": "uniform"}),
    "attention": ("ar-capsnet", {"filters": 4, "types": 3, "capsule_size": 4}),
    "trainable": ("g-capsnet-conv", {"filters": 8, "types": 2}),
    "discriminative": ("capsnet-l1", {"filters": 8, "types": 2}),
}


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_vote_distances_against_loops(damping: float) -> None:
    model = small("matrix-capsnet", **MATRIX, routing_options={"mean_damping": damping})
    _, layers = inspect_layers(model, torch.rand(2, 1, 28, 28), votes=True)
    for layer in (layers[0], layers[-1]):
        distances = vote_distances(layer)
        assert layer.votes is not None
        assert layer.children.activation is not None
        position = layer.votes.shape[1] // 2
        active = layer.children.activation[1].flatten()[layer.child_index[position].flatten()]
        expected = reference.em_distances(
            layer.votes[1, position].tolist(),
            active.tolist(),
            [each[1, position].tolist() for each in layer.couplings],
            damping,
        )
        for found, wanted in zip(distances, expected, strict=True):
            torch.testing.assert_close(found[1, position], torch.tensor(wanted), rtol=1e-3, atol=1e-4)
        # The last mean is the pose that the layer gave.
        pose = layer.parents.pose.flatten(1, 2).unsqueeze(2)
        torch.testing.assert_close(distances[-1], (layer.votes - pose).norm(dim=4), rtol=1e-3, atol=1e-4)


def test_vote_histograms_against_loops() -> None:
    model, images = small("matrix-capsnet", **MATRIX), torch.rand(2, 1, 28, 28)
    data = vote_histograms(model, images, bins=12)
    _, layers = inspect_layers(model, images, votes=True)
    distances = vote_distances(layers[-1])
    for kind in ("zoomed", "whole"):
        reach, bins = data[kind]["edges"][-1], {"zoomed": 6, "whole": 12}[kind]
        for iteration in (0, 2):
            for parent in range(4):
                found = data[kind]["weights"][1][iteration][parent]
                weights = layers[-1].couplings[iteration][1, 0, :, parent].tolist()
                wanted = reference.weighted_histogram(
                    distances[iteration][1, 0, :, parent].tolist(), weights, reach, bins
                )
                assert found == pytest.approx(wanted, abs=2e-3 * sum(weights))
    whole, zoomed = torch.tensor(data["whole"]["weights"]), torch.tensor(data["zoomed"]["weights"])
    torch.testing.assert_close(whole.sum((2, 3)), torch.full((2, 3), float(layers[-1].couplings[0].shape[2])))
    assert float(zoomed[:, -1].sum() / whole[:, -1].sum()) == pytest.approx(0.5, abs=0.01)


def test_vote_distances_need_em() -> None:
    with pytest.raises(TorchcapsError, match="DynamicRouting has no means"):
        vote_histograms(small("capsnet", filters=8, types=2), torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize("kind", KINDS)
def test_propagated_couplings_against_loops(kind: str) -> None:
    model = small(KINDS[kind][0], **KINDS[kind][1])
    _, layers = inspect_layers(model, torch.rand(2, 1, 28, 28))
    classes, iteration = torch.tensor([3, 1]), 1
    found = propagate_couplings(layers, classes, iteration)
    maps = vote_maps(layers, classes, iteration)
    for image in range(2):
        reached = [[1.0 if number == int(classes[image]) else 0.0 for number in range(4)]]
        for number in reversed(range(len(layers))):
            layer = layers[number]
            couplings = layer.couplings[min(iteration, len(layer.couplings) - 1)][image].tolist()
            _, height, width, types, _ = layer.children.pose.shape
            flat = reference.spread_couplings(couplings, reached, layer.child_index.tolist(), height * width * types)
            torch.testing.assert_close(found[number][image].flatten(), torch.tensor(flat), rtol=1e-4, atol=1e-6)
            weighted = torch.tensor(flat).view(height * width, types) * presence(layer.children)[image].flatten(0, 1)
            torch.testing.assert_close(maps[number][image].flatten(), weighted.sum(1), rtol=1e-4, atol=1e-5)
            reached = [flat[place * types : (place + 1) * types] for place in range(height * width)]


def test_shares_of_all_classes_sum_to_one() -> None:
    """If couplings are normalized over parents, the shares of all classes sum to one, through any number of layers."""
    for kind in ("dynamic", "em", "uniform"):
        model = small(KINDS[kind][0], **KINDS[kind][1])
        _, layers = inspect_layers(model, torch.rand(1, 1, 28, 28))
        total = sum(propagate_couplings(layers, torch.tensor([label]), 2)[0] for label in range(4))
        present, kept = (
            presence(layers[0].children),
            sum(class_share(layers, torch.tensor([n]), 2) for n in range(4)),
        )
        torch.testing.assert_close(kept, (total * present).sum().view(1) / present.sum(), rtol=1e-3, atol=1e-4)
        seen = torch.zeros(total.numel())
        seen[layers[0].child_index.flatten().unique()] = 1.0  # a window without padding leaves some at the border out
        if len(layers) == 1 or (seen == 1).all():
            torch.testing.assert_close(total.flatten(), seen, rtol=1e-3, atol=1e-3)
        else:
            assert float(total.max()) < 1.001


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_against_loops(kind: str) -> None:
    model = small(KINDS[kind][0], **KINDS[kind][1])
    _, layers = inspect_layers(model, torch.rand(1, 1, 28, 28))
    for layer in layers:
        entropies = coupling_entropy(layer)
        assert len(entropies) == len(layer.couplings)
        attention = kind == "attention"
        for entropy, couplings in zip(entropies, layer.couplings, strict=True):
            assert entropy.over == ("children" if attention else "parents")
            values = couplings[0].tolist()
            wanted = (
                reference.entropy_over_children(values)
                if attention
                else reference.entropy_over_parents(values, layer.child_index.squeeze(2).tolist())
            )
            assert (entropy.nats, entropy.relative) == pytest.approx(wanted, rel=1e-3)
        if kind in ("dynamic", "em", "uniform"):
            assert entropies[0].relative == pytest.approx(1.0, abs=1e-4), "shares are equal at first"


def test_activity_against_loops() -> None:
    model, images = small("matrix-capsnet", **MATRIX), torch.rand(12, 1, 28, 28)
    told: list[int] = []
    found = measure_activity(model, images, advance=told.append)
    assert told == [10, 2]
    _, layers = inspect_layers(model, images)
    assert [each.name for each in found] == ["primary", *(layer.name for layer in layers)]
    for each, capsules in zip(found, [layers[0].children, *(layer.parents for layer in layers)], strict=True):
        presences = presence(capsules).flatten(1, 2).tolist()
        greatest, first, silent, never = reference.liveliness(presences)
        torch.testing.assert_close(each.max_presence, torch.tensor(greatest), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(each.win_share, torch.tensor(first), rtol=0, atol=2e-3)
        assert (each.inactive, each.never_highest) == (silent, never)
    dead = CapsuleActivity("layer", torch.tensor([0.5, 0.004, 0.3]), torch.tensor([0.9, 0.1, 0.0]))
    assert (dead.inactive, dead.never_highest) == ([1], [2])


@pytest.mark.parametrize("name", ["capsnet", "matrix-capsnet", "g-capsnet-conv"])
def test_receptive_field_centers(name: str) -> None:
    model = small(name).double()
    images = torch.rand(1, 1, 28, 28, dtype=torch.float64, requires_grad=True)
    pose: Tensor = model.primary(model.features(images)).pose  # without preprocessing, which looks at every pixel
    rows, columns = primary_centers(model, tuple(pose.shape[1:3]))
    for row, column in ((0, 0), (1, 3), (pose.shape[1] - 1, pose.shape[2] - 1)):
        (slope,) = torch.autograd.grad(pose[0, row, column].sum(), images, retain_graph=True)
        touched = torch.nonzero(slope[0, 0]).double() + 0.5
        center = (touched.amin(0) + touched.amax(0)) / 2
        assert (float(rows[row]), float(columns[column])) == pytest.approx(tuple(center.tolist()), abs=1e-6)


def test_grid_extents_of_all_layers() -> None:
    model = small("matrix-capsnet", **MATRIX)
    _, layers = inspect_layers(model, torch.rand(1, 1, 28, 28))
    # 12x12 places with step 2 from pixel 2.5 on; windows of 3 with stride 2; then of 3 with stride 1.
    assert grid_extents(model, layers) == [
        pytest.approx((1.5, 25.5, 25.5, 1.5)),
        pytest.approx((2.5, 22.5, 22.5, 2.5)),
        pytest.approx((6.5, 18.5, 18.5, 6.5)),
    ]
