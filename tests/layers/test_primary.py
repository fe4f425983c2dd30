from __future__ import annotations

import pytest
import torch

from torchcaps.layers import MatrixPrimaryCapsules, Standardize


def test_poses_are_linear_and_activations_logistic() -> None:
    layer = MatrixPrimaryCapsules(6, 3, 4)
    features = torch.randn(2, 6, 5, 4)
    capsules = layer(features)
    assert capsules.pose.shape == (2, 5, 4, 3, 4)
    assert sum(each.numel() for each in layer.parameters()) == (6 + 1) * 3 * (4 + 1)
    maps = torch.einsum("oc,c->o", layer.conv.weight[:, :, 0, 0], features[1, :, 2, 3]) + layer.conv.bias
    torch.testing.assert_close(capsules.pose[1, 2, 3], maps[:12].view(3, 4))
    assert capsules.activation is not None
    torch.testing.assert_close(capsules.activation[1, 2, 3], 1 / (1 + torch.exp(-maps[12:])))


def test_each_image_gets_zero_mean_and_unit_variance() -> None:
    images = torch.rand(3, 2, 8, 8) * torch.tensor([0.1, 0.5, 1.0]).view(3, 1, 1, 1)
    prepared = Standardize()(images)
    for image, raw in zip(prepared, images, strict=True):
        torch.testing.assert_close(image, (raw - raw.mean()) / raw.std(correction=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_blank_image_stays_blank_with_a_finite_gradient(value: float) -> None:
    images = torch.full((2, 1, 8, 8), value, requires_grad=True)
    prepared = Standardize()(images)
    prepared.sum().backward()
    torch.testing.assert_close(prepared, torch.zeros_like(prepared), rtol=0, atol=1e-5)
    assert images.grad is not None
    assert torch.isfinite(images.grad).all()
