"""The fifteen corruptions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchcaps.data.corruptions import SEVERITIES, Corruption, corruptions
from torchcaps.errors import TorchcapsError

each_corruption = pytest.mark.parametrize("corruption", list(corruptions), ids=lambda each: each.name)


def smooth(count: int, channels: int, side: int) -> Tensor:
    """Images with large shapes in them, as photographs have."""
    torch.manual_seed(0)
    coarse = torch.rand(count, channels, 5, 5)
    return torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear", align_corners=True)


def test_there_are_the_fifteen_of_imagenet_c() -> None:
    kinds = [each.kind for each in corruptions]
    assert {kind: kinds.count(kind) for kind in kinds} == {"noise": 3, "blur": 4, "weather": 4, "digital": 4}
    assert all(len(each.strengths) == 5 for each in corruptions)


@each_corruption
@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 16), (2, 20)])
def test_images_stay_images_and_seeds_decide(corruption: Corruption, channels: int, side: int) -> None:
    images = smooth(3, channels, side)
    before = images.clone()
    first, again, other = (corruption(images, 3, seed=seed) for seed in (1, 1, 2))
    assert first.shape == images.shape
    assert first.isfinite().all()
    assert 0 <= first.min() <= first.max() <= 1
    assert torch.equal(first, again)
    assert torch.equal(images, before)
    assert (first - images).abs().max() > 1e-3
    fixed = corruption.name in ("defocus-blur", "zoom-blur", "brightness", "contrast", "pixelate", "jpeg-compression")
    assert torch.equal(first, other) == fixed


@each_corruption
def test_a_higher_severity_changes_more(corruption: Corruption) -> None:
    images = torch.rand(4, 1, 16, 16) if corruption.name == "pixelate" else smooth(8, 3, 24)
    change = [(corruption(images, severity) - images).square().mean().item() for severity in SEVERITIES]
    if corruption.name == "elastic-transform":  # its severities trade large maps for local ones
        assert min(change) > 0
    else:
        assert change[4] > 1.2 * change[0]


def test_the_strengths_are_what_they_say() -> None:
    torch.manual_seed(0)
    gray = torch.full((8, 1, 32, 32), 0.5)
    assert (corruptions.get("gaussian-noise")(gray, 5) - gray).std().item() == pytest.approx(0.1, rel=0.05)
    assert corruptions.get("shot-noise")(gray, 5).std().item() == pytest.approx((0.5 / 50) ** 0.5, rel=0.05)
    pepper = corruptions.get("impulse-noise")(gray, 5)
    assert (pepper != 0.5).float().mean().item() == pytest.approx(0.07, abs=0.01)
    assert set(pepper.unique().tolist()) == {0.0, 0.5, 1.0}
    torch.testing.assert_close(corruptions.get("brightness")(gray, 4), gray + 0.2)
    images = smooth(2, 3, 32)
    mean = images.mean((2, 3), keepdim=True)
    torch.testing.assert_close(corruptions.get("contrast")(images, 2), mean + 0.5 * (images - mean))
    brighter = corruptions.get("brightness")(images, 1)
    torch.testing.assert_close(brighter.amax(1), (images.amax(1) + 0.05).clamp(max=1))


@pytest.mark.parametrize(
    "name", ["defocus-blur", "motion-blur", "zoom-blur", "glass-blur", "pixelate", "elastic-transform"]
)
def test_blurs_leave_a_flat_image_alone(name: str) -> None:
    flat = torch.full((2, 1, 16, 16), 0.3)
    torch.testing.assert_close(corruptions.get(name)(flat, 5), flat, rtol=0, atol=1e-5)


def test_other_severities_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="severities 1 to 5, got 6"):
        corruptions.get("fog")(torch.zeros(1, 1, 8, 8), 6)
