"""Compactness and alignment: compared with loop references, limiting cases, and invalid input."""

from __future__ import annotations

import math

import pytest
import torch

from tests.reference import analysis as reference
from torchcaps.analysis import measure_alignment, measure_compactness, random_reference
from torchcaps.analysis.sweeps import (
    FACTORS,
    STEPS,
    affine_sweep,
    align_vectors,
    class_vectors,
    compactness_score,
    sweep_values,
)
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model


def small_capsnet() -> torch.nn.Module:
    return create_model("capsnet", size="laptop", filters=8, types=2, class_size=5, decoder="none").eval()


def test_compactness_against_loops_and_limits() -> None:
    vectors = torch.randn(6, 7, 5)
    expected = [reference.compactness(each) for each in vectors.tolist()]
    torch.testing.assert_close(compactness_score(vectors), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    one_hot = torch.zeros(1, 4, 16)
    one_hot[0, :, 3] = torch.tensor([1.0, 5.0, 2.0, 0.0])
    assert float(compactness_score(one_hot)) == pytest.approx(math.log(16), abs=1e-6)
    alike = torch.tensor([0.1, 0.7, -0.4]).view(1, 3, 1).expand(1, 3, 8)
    assert float(compactness_score(alike)) == pytest.approx(0, abs=1e-6)
    assert compactness_score(torch.ones(1, 4, 8)).isnan().all(), "what does not change has no score"


def test_alignment_against_loops_and_limits() -> None:
    differences = torch.randn(4, 5, 6) * torch.tensor([3.0, 1, 1, 1, 1, 1]) + 0.5
    vectors, ratios = align_vectors(differences)
    for number, each in enumerate(differences.tolist()):
        vector, ratio = reference.align(each)
        torch.testing.assert_close(vectors[number], torch.tensor(vector), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(ratios[number], torch.tensor(ratio), rtol=1e-3, atol=1e-4)
    line = torch.randn(3, 1, 32) * torch.tensor([1.0, 2.0, -0.5, 7.0, 0.1]).view(1, 5, 1)
    torch.testing.assert_close(align_vectors(line)[1], torch.ones(3, 5))


@pytest.mark.parametrize(("size", "mean"), [(16, 0.495), (32, 0.464), (64, 0.437)])
def test_random_vectors_are_aligned_by_chance(size: int, mean: float) -> None:
    """The paper prints 0.311 for 32-D."""
    assert random_reference(size)["mean"] == pytest.approx(mean, abs=0.01)
    assert random_reference(32)["deviation"] == pytest.approx(0.268, abs=0.01)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_sweep_changes_one_factor(factor: str) -> None:
    images = torch.zeros(1, 2, 21, 21)
    images[0, :, 8:13, 8:15] = 1.0
    values = sweep_values(factor, 21, 5)
    changed = affine_sweep(images, factor, values)
    assert changed.shape == (1, 5, 2, 21, 21)
    neutral = 1.0 if factor == "scale" else 0.0
    assert values[2] == pytest.approx(neutral)
    torch.testing.assert_close(changed[:, 2], images, rtol=0, atol=1e-5)
    rows, columns = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(21.0) - 10, indexing="ij")
    mass = changed[0, 4, 0]
    moved = {
        "shift_x": (mass * columns).sum() / mass.sum() - images[0, 0].mul(columns).sum() / images[0, 0].sum(),
        "shift_y": (mass * rows).sum() / mass.sum() - images[0, 0].mul(rows).sum() / images[0, 0].sum(),
    }
    for name, move in moved.items():
        if name == factor:
            assert float(move) == pytest.approx(values[4], abs=0.1)
        elif factor.startswith("shift"):
            assert float(move) == pytest.approx(0, abs=1e-4)


def test_vectors_are_those_of_the_true_class() -> None:
    model, images, labels = small_capsnet(), torch.rand(3, 2, 1, 28, 28), torch.tensor([4, 0, 9])
    vectors = class_vectors(model, images, labels)
    for image in range(3):
        for step in range(2):
            pose = model(images[image, step].unsqueeze(0)).pose[0, labels[image]]
            torch.testing.assert_close(vectors[image, step], pose, rtol=1e-4, atol=1e-6)


def test_measures_over_images_against_loops() -> None:
    model, images, labels = small_capsnet(), torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 1])
    told: list[int] = []
    data = measure_compactness(model, images, labels, steps=4, advance=told.append)
    assert told == [3] * 6
    assert data["greatest"] == pytest.approx(math.log(5))
    for factor in ("rotation", "shear_y"):
        vectors = class_vectors(model, affine_sweep(images, factor, sweep_values(factor, 28, 4)), labels)
        expected = sum(reference.compactness(each) for each in vectors.tolist()) / 3
        assert data["factors"][factor]["score"] == pytest.approx(expected, rel=1e-3)
        expected = reference.compactness_of_mean_shares(vectors.tolist())
        assert data["factors"][factor]["score_of_mean_shares"] == pytest.approx(expected, rel=1e-3)
    aligned = measure_alignment(model, images, labels)
    rest = class_vectors(model, images.unsqueeze(1), labels)
    plus = class_vectors(model, affine_sweep(images, "shift_x", STEPS["shift_x"]), labels) - rest
    minus = class_vectors(model, affine_sweep(images, "shift_x", [-step for step in STEPS["shift_x"]]), labels) - rest
    found = [(reference.align(a), reference.align(b)) for a, b in zip(plus.tolist(), minus.tolist(), strict=True)]
    expected = sum(sum(ratios) / 5 for (_, ratios), _ in found) / 3
    assert aligned["ratio"]["shift_x"]["+"]["mean"] == pytest.approx(expected, rel=1e-3)
    second = [sum(ratios) / 5 for (_, ratios), _ in found][1]
    assert aligned["ratio"]["shift_x"]["+"]["by_class"][2] == pytest.approx(second, rel=1e-3)
    same = [sum(x * y for x, y in zip(a, b, strict=True)) > 0 for (a, _), (b, _) in found]
    assert aligned["cosine"]["shift_x"]["same_side"] == pytest.approx(sum(same) / 3)
    assert sum(aligned["cosine"]["shift_x"]["counts"]) == 3
    assert aligned["random"]["paper_size"]["mean"] == pytest.approx(0.464, abs=0.01)
    assert aligned["paper"]["random"]["mean"] == 0.311


def test_invalid_input_is_refused() -> None:
    images, labels = torch.rand(2, 1, 28, 28), torch.tensor([1, 2])
    with pytest.raises(TorchcapsError, match="has no class capsules"):
        measure_compactness(create_model("convnet-avg", size="laptop"), images, labels)
    with pytest.raises(TorchcapsError, match="expected one label per image, got 2"):
        measure_alignment(small_capsnet(), images, torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(TorchcapsError, match="factor 'rotatoin' is unknown: did you mean 'rotation'"):
        affine_sweep(images, "rotatoin", [1.0])
