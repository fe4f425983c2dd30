from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchcaps
from torchcaps.data import TensorImages, datasets
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Capsules
from torchcaps.models import Model, create_model

SMALL: dict[str, Any] = {"filters": 8, "types": (2, 3, 4)}


def weights(model: Model) -> int:
    """Parameters as the paper counts them: without the two biases per capsule type."""
    return sum(each.numel() for name, each in model.named_parameters() if "beta" not in name)


@pytest.mark.parametrize(
    ("name", "count"), [("matrix-capsnet", 316_256), ("matrix-capsnet-68k", 67_080), ("cnn-hinton2018", 4_252_549)]
)
def test_number_of_parameters(name: str, count: int) -> None:
    assert weights(create_model(name, size="paper", image_size=32, classes=5)) == count


def test_vector_poses_cost_sixteen_times_the_matrices() -> None:
    def transforms(pose: str) -> int:
        model = create_model("matrix-capsnet", size="paper", image_size=32, classes=5, pose=pose)
        return sum(each.numel() for name, each in model.named_parameters() if "transform" in name)

    assert transforms("vector") == 16 * transforms("matrix")


def test_two_betas_per_capsule_type() -> None:
    model = create_model("matrix-capsnet", **SMALL)
    assert sum(each.numel() for name, each in model.named_parameters() if "beta" in name) == 2 * (3 + 4 + 10)


@pytest.mark.parametrize(("image_size", "channels"), [(28, 1), (32, 3), (48, 2), (17, 1)])
@pytest.mark.parametrize("name", ["matrix-capsnet", "cnn-hinton2018"])
def test_any_image_that_leaves_a_grid(name: str, image_size: int, channels: int) -> None:
    options = SMALL if name == "matrix-capsnet" else {}
    model = create_model(name, image_size=image_size, channels=channels, classes=7, **options)
    output = model(torch.rand(2, channels, image_size, image_size))
    assert output.scores.shape == output.logits.shape == (2, 7)
    assert ((output.scores >= 0) & (output.scores <= 1)).all()
    assert torch.equal(output.scores.argmax(1), output.logits.argmax(1))
    assert output.pose is None if name == "cnn-hinton2018" else output.pose.shape == (2, 7, 16)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pose": "vector"},
        {"coordinates": False},
        {"routing_options": {"iterations": 1}},
        {"routing_options": {"activation": "mixing"}},
        {"routing": "dynamic"},
        {"routing": "uniform"},
        {"preprocess": "none"},
        {"normalization": "rms"},
    ],
    ids=str,
)
def test_every_parameter_learns(options: dict[str, Any]) -> None:
    model = create_model("matrix-capsnet", **SMALL, **options)
    model(torch.rand(4, 1, 28, 28)).scores[:, 3].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


def test_coordinates_tell_places_apart() -> None:
    """Without them, turning the grid of children upside down changes nothing."""
    model = create_model("matrix-capsnet", **SMALL)
    plain = create_model("matrix-capsnet", **SMALL, coordinates=False)
    plain.load_state_dict({k.replace("transform.transform", "transform"): v for k, v in model.state_dict().items()})
    children = torch.randn(2, 3, 3, 4, 16), torch.rand(2, 3, 3, 4)
    for built, changes in ((model, True), (plain, False)):
        layer: nn.Module = built.capsules.layers[2]
        there = layer(Capsules(*children)).pose
        moved = layer(Capsules(*(each.flip(1) for each in children))).pose
        assert torch.allclose(there, moved, atol=1e-5) != changes


def test_poses_of_em_routing_are_not_squashed() -> None:
    model = create_model("matrix-capsnet", **SMALL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "transform" in name:
                parameter.mul_(10)
    pose = model(torch.rand(2, 1, 28, 28)).pose
    assert pose is not None
    assert pose.norm(dim=2).max() > 2


def test_brightness_and_contrast_do_not_matter_when_standardized() -> None:
    model = create_model("matrix-capsnet", **SMALL)
    images = torch.rand(2, 1, 28, 28) * 0.5
    torch.testing.assert_close(model(images).scores, model(0.3 + images * 0.8).scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("data", ["smallnorb", "smallnorb-jpeg", "turntable"])
@pytest.mark.parametrize("name", ["matrix-capsnet", "cnn-hinton2018"])
def test_brightness_and_contrast_of_training_come_after_the_normalization(name: str, data: str) -> None:
    """hinton2018, section 5: before it, standardization would undo them."""
    record = datasets.get(data)
    model = create_model(name, size="laptop", channels=2, classes=5, image_size=32)
    images = TensorImages((torch.rand(64, 2, 32, 32) * 255).byte(), torch.arange(64) % 5, record.class_names)
    seen = []
    layer = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]) if layer.training else None)
    torchcaps.fit(model, images, images, steps=1, batch_size=64, loss="cross-entropy", augmentation=record.augmentation)
    deviation, mean = torch.std_mean(seen[0], (1, 2, 3))
    assert 0.19 < deviation.min() < 0.4
    assert 1.6 < deviation.max() < 1.81
    assert 0.15 < mean.max() < 0.25
    assert -0.25 < mean.min() < -0.15


def test_wrong_settings_are_refused_when_built() -> None:
    with pytest.raises(TorchcapsError, match="pose 'matrx' is unknown: did you mean 'matrix'"):
        create_model("matrix-capsnet", pose="matrx")
    with pytest.raises(TorchcapsError, match="preprocess 'standard' is unknown: did you mean 'standardize'"):
        create_model("cnn-hinton2018", preprocess="standard")
    with pytest.raises(TorchcapsError, match="images of 16 pixels are too small"):
        create_model("matrix-capsnet", image_size=16)
    with pytest.raises(TorchcapsError, match="normalization 'rmss' is unknown: did you mean 'rms'"):
        create_model("matrix-capsnet", normalization="rmss")
    with pytest.raises(TorchcapsError, match="at least 1 filter and type"):
        create_model("matrix-capsnet", types=(8, 0, 8))
    with pytest.raises(TorchcapsError, match="the capsules below have only a pose"):
        create_model("capsnet", routing="em", nonlinearity="none")


def test_poses_reach_the_class_layer_of_a_new_network() -> None:
    """The votes of random matrices cancel in a parent's mean; near the identity they are passed on."""

    def spread_of_poses(start: str) -> list[float]:
        torch.manual_seed(0)
        model = create_model("matrix-capsnet", size="laptop", start=start)
        capsules = model.primary(model.features(model.preprocess(torch.rand(4, 1, 28, 28))))
        spreads = []
        for layer in model.capsules.layers:
            capsules = layer(capsules)
            spreads.append(capsules.pose.std().item())
        return spreads[:2]

    random, identity = spread_of_poses("random"), spread_of_poses("identity")
    assert random[1] < 0.3 * random[0]
    assert identity[1] > 0.5 * identity[0]
    torch.manual_seed(0)
    default = create_model("matrix-capsnet", size="laptop")
    torch.manual_seed(0)
    near = create_model("matrix-capsnet", size="laptop", start="identity")
    assert all(torch.equal(one, other) for one, other in zip(default.parameters(), near.parameters(), strict=True))


def test_normalized_poses_have_unit_size_below_the_class_layer_for_every_image() -> None:
    """It costs no parameters, depends on no other image, and leaves the poses of the classes as they are."""
    model = create_model("matrix-capsnet", size="laptop", normalization="rms")
    plain = create_model("matrix-capsnet", size="laptop")
    assert sum(each.numel() for each in model.parameters()) == sum(each.numel() for each in plain.parameters())
    images = torch.rand(3, 1, 28, 28)
    capsules = model.primary(model.features(model.preprocess(images)))
    sizes = []
    for layer in model.capsules.layers:
        capsules = layer(capsules)
        sizes.append(capsules.pose.square().mean((1, 2, 3, 4)).sqrt())
    assert torch.allclose(torch.stack(sizes[:2]), torch.ones(2, 3), atol=1e-3)
    assert (sizes[2] - 1).abs().min() > 0.01
    assert torch.allclose(model(images).scores[:1], model(images[:1]).scores, atol=1e-6)
