from __future__ import annotations

import itertools

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.models import create_model


@pytest.mark.parametrize(
    ("transform", "routing", "nonlinearity", "decoder"),
    [
        *itertools.product(
            ("dense", "shared"), ("dynamic", "uniform"), ("squash", "none"), ("conditional", "normal", "none")
        )
    ],
)
def test_every_component_is_a_switch_of_its_own(transform: str, routing: str, nonlinearity: str, decoder: str) -> None:
    model = create_model(
        "capsnet",
        size="laptop",
        transform=transform,
        routing=routing,
        nonlinearity=nonlinearity,
        decoder=decoder,
        image_size=20,
    )
    output = model(torch.rand(2, 1, 20, 20))
    assert output.scores.isfinite().all()
    assert output.logits.isfinite().all()
    assert (model.decoder is None) == (decoder == "none")


def test_logits_without_squash_are_those_that_squash_would_give() -> None:
    free = create_model("capsnet", size="laptop", nonlinearity="none", routing="uniform")
    output = free(torch.rand(3, 1, 28, 28))
    squashed = squash(output.pose).norm(dim=2)
    torch.testing.assert_close(output.logits, squashed.logit(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(output.scores, output.pose.norm(dim=2))


def test_convnet_cr_sf_is_capsnet_without_routing() -> None:
    """The same weights, ordered for a linear layer and divided by the number of classes, give the same answer."""
    plain = create_model("convnet-cr-sf", size="laptop", decoder="none").eval()
    capsules = create_model("capsnet-nor", size="laptop", decoder="none").eval()
    capsules.features[0].load_state_dict(plain.first.state_dict())
    capsules.primary.conv.load_state_dict(plain.second.state_dict())
    # Columns of the linear layer: type, number, row, column. Children of the capsule layer: row, column, type.
    matrix = plain.units.weight.view(160, 8, 8, 6, 6).permute(3, 4, 1, 2, 0).reshape(288, 8, 160)
    capsules.capsules.layers[0].transform.weight.data.copy_(10 * matrix)
    images = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(capsules(images).scores, plain(images).scores, rtol=1e-4, atol=1e-5)


def test_convnet_cr_sums_groups_and_draws_from_one_while_convnet_r_draws_from_all() -> None:
    images, labels = torch.rand(2, 1, 28, 28), torch.tensor([3, 4])
    grouped = create_model("convnet-cr", size="laptop")
    output = grouped(images)
    torch.testing.assert_close(output.scores, output.pose.sum(2).sigmoid())
    other = output.pose.clone()
    other[:, 7] += 1
    assert torch.equal(grouped.reconstruct(output, labels), grouped.reconstruct(output._replace(pose=other), labels))
    free = create_model("convnet-r", size="laptop")
    output = free(images)
    other = output.pose.clone()
    other[:, 7] += 1
    assert not torch.equal(free.reconstruct(output, labels), free.reconstruct(output._replace(pose=other), labels))


def test_units_may_have_a_relu() -> None:
    for name in ("convnet-r", "convnet-cr"):
        torch.manual_seed(0)
        plain = create_model(name, size="laptop", decoder="none")
        rectified = create_model(name, size="laptop", decoder="none", activation="relu")
        rectified.load_state_dict(plain.state_dict())
        images = torch.rand(2, 1, 28, 28)
        assert plain(images).pose.min() < 0
        assert torch.equal(rectified(images).pose, plain(images).pose.relu())
    with pytest.raises(TorchcapsError, match="did you mean 'relu'"):
        create_model("convnet-r", activation="rely")
