"""G-CapsNets and their CNN against each other and against the released configuration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.functional import exponential_squash
from torchcaps.models import create_model
from torchcaps.reproduce.jobs import training_job
from torchcaps.reproduce.spec import PROFILES, Profile, load_spec

CIFAR10: dict[str, Any] = {"image_size": 32, "channels": 3}


def convolutions(model: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(each.weight.shape) for each in model.modules() if isinstance(each, nn.Conv2d)]


@pytest.mark.parametrize("size", ["paper", "laptop"])
def test_the_cnn_shares_its_first_two_layers_with_the_capsules(size: str) -> None:
    with torch.device("meta"):
        cnn, fc, conv = (
            create_model(name, size=size, **CIFAR10)
            for name in ("cnn-chen2019", "g-capsnet-fc-cifar10", "g-capsnet-conv-cifar10")
        )
    assert convolutions(cnn) == convolutions(fc) == convolutions(conv)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("column", ["param #, MNIST", "param #, CIFAR10"])
def test_parameters_of_table_2_have_the_ratios_of_the_paper(profile: Profile, column: str) -> None:
    spec = load_spec("chen2019")
    shares = {}
    for cell in spec.tables["table2"].cells.values():
        if cell.column == column:
            assert cell.training is not None
            assert cell.published is not None
            with torch.device("meta"):
                model = training_job(spec, cell.training, profile, 0).config._create_model()
            shares[cell.row] = sum(each.numel() for each in model.parameters()) / cell.published
    assert len(shares) >= 5
    assert max(shares.values()) / min(shares.values()) <= 1.2, shares


def test_fc_and_conv_for_cifar10_are_one_function() -> None:
    torch.manual_seed(0)
    fc, conv = (
        create_model(f"g-capsnet-{kind}-cifar10", size="laptop", types=2, **CIFAR10).eval() for kind in ("fc", "conv")
    )
    shared = {name: value for name, value in conv.state_dict().items() if "transform" not in name}
    missing = fc.load_state_dict(shared, strict=False).missing_keys
    assert len(missing) == 1
    weight = dict(fc.named_parameters())[missing[0]]
    (kernel,) = (value for name, value in conv.named_parameters() if "transform" in name)
    images = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        weight.copy_(kernel.reshape(weight.shape))
        torch.testing.assert_close(fc(images).scores, conv(images).scores)


@pytest.mark.parametrize(
    ("name", "nonlinearity"),
    [
        ("g-capsnet-fc", "relu-exponential"),
        ("g-capsnet-conv", "relu-exponential"),
        ("g-capsnet-multi", "exponential-relu"),
    ],
)
def test_the_released_nonlinearities(name: str, nonlinearity: str) -> None:
    """ReLU comes before the squash in primary capsules; in the capsule layers of the multi-layer network, after it."""
    torch.manual_seed(0)
    model = create_model(name, size="laptop", nonlinearity=nonlinearity, image_size=28)
    before: list[Tensor] = []
    model.primary.conv.register_forward_hook(lambda _module, _inputs, output: before.append(output))
    images = torch.rand(2, 1, 28, 28)
    primary = model.primary(model.features(images)).pose
    maps = before[0].permute(0, 2, 3, 1).unflatten(3, primary.shape[3:])
    torch.testing.assert_close(primary, exponential_squash(F.relu(maps)))
    pose = torch.randn(4, 8)
    after = nonlinearity == "exponential-relu"
    expected = F.relu(exponential_squash(pose)) if after else exponential_squash(F.relu(pose))
    for layer in model.capsules.layers:
        torch.testing.assert_close(layer.nonlinearity(pose), expected)


def test_lengths_that_are_no_scores_are_refused() -> None:
    for name in ("g-capsnet-conv", "g-capsnet-multi"):
        with pytest.raises(TorchcapsError, match="needs a nonlinearity with lengths below 1, got 'none': use 'squash'"):
            create_model(name, size="laptop", nonlinearity="none")


def test_dropout_of_the_cnns_acts_in_training_only_and_keeps_the_names_of_the_weights() -> None:
    for name, settings in {"cnn-chen2019": CIFAR10, "convnet-fc": {}}.items():
        plain, dropping = (create_model(name, size="laptop", dropout=dropout, **settings) for dropout in (0.0, 0.5))
        dropping.load_state_dict(plain.state_dict())
        images = torch.rand(2, *plain.image_shape)
        assert torch.equal(plain.eval()(images).logits, dropping.eval()(images).logits)
        dropping.train()
        assert not torch.equal(dropping(images).logits, dropping(images).logits)
