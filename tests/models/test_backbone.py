"""Backbones: large and odd images in every model, frozen modules, and drawings at a reduced size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from torchcaps import create_model
from torchcaps.data import TensorImages
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import attack_model
from torchcaps.models import models
from torchcaps.models.backbone import Backbone, choose_backbone

SMALL = {"capsnet": {"filters": 4, "types": 2, "hidden": (8, 8)}}


@pytest.mark.parametrize("record", list(models), ids=lambda record: record.name)
def test_every_model_takes_large_images_that_are_not_square(record: object) -> None:
    name = record.name  # type: ignore[attr-defined]
    model = create_model(name, size="laptop", image_size=(120, 72), channels=3, classes=3).eval()
    images = torch.rand(2, 3, 120, 72)
    with torch.no_grad():
        output = model(images)
    assert output.scores.shape == (2, 3)
    assert model.image_shape == (3, 120, 72)
    if model.decoder is not None:
        assert model.reconstruct(output).shape == images.shape
        assert model.reconstruct(output, enlarge=False).shape == (2, 3, 28, 28)


@pytest.mark.parametrize("name", ["ar-capsnet", "g-capsnet-conv", "g-capsnet-multi", "capsnet"])
def test_images_that_are_not_square_need_no_backbone(name: str) -> None:
    model = create_model(name, size="laptop", image_size=(30, 26), classes=3).eval()
    assert isinstance(model.backbone, nn.Identity)
    assert model(torch.rand(2, 1, 30, 26)).scores.shape == (2, 3)


def test_the_papers_images_have_no_backbone() -> None:
    """Otherwise the weights and results of earlier releases would not fit."""
    assert all(choose_backbone(record.image) == "none" for record in models)
    assert choose_backbone((1, 48, 48)) == "none"
    assert choose_backbone((1, 28, 49)) == "strided"


def test_the_grid_of_capsules_keeps_its_size() -> None:
    for side in (64, 96, 131, 224):
        model = create_model("capsnet", image_size=side, channels=3, **SMALL["capsnet"])
        assert model.primary(model.features(model.backbone(torch.rand(1, 3, side, side)))).pose.shape[1:3] == (6, 6)


class Pyramid(nn.Module):
    """Returns several feature maps, as the models of timm do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 5, 2, 2), nn.Conv2d(5, 6, 2, 2)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, images: Tensor) -> list[Tensor]:
        half = self.first(images)
        return [half, self.norm(self.second(half))]


def test_a_frozen_module_stays_as_it_is() -> None:
    module = Pyramid()
    model = create_model(
        "capsnet", image_size=112, channels=3, classes=3, backbone=module, freeze_backbone=True, **SMALL["capsnet"]
    ).train()
    assert isinstance(model.backbone, Backbone)
    assert model.backbone.feature_shape == (6, 28, 28), "the feature map nearest to 28 pixels"
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1.0)
    model(torch.rand(4, 3, 112, 112)).scores.sum().backward()
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    images = torch.rand(1, 3, 112, 112, requires_grad=True)
    model.eval()(images).scores.sum().backward()
    assert images.grad is not None, "an attack must reach the pixels through a frozen backbone"
    assert images.grad.abs().sum() > 0


def test_a_module_is_trained_unless_it_is_frozen() -> None:
    model = create_model("capsnet", image_size=64, channels=3, backbone=nn.Conv2d(3, 4, 2, 2), **SMALL["capsnet"])
    model(torch.rand(2, 3, 64, 64)).scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.backbone.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "resnet"}, r"backbone 'resnet' is unknown.*in Python, a module such as timm"),
        ({"backbone": nn.Flatten()}, r"should return feature maps \(B, C, H, W\), Flatten returns"),
        ({"image_size": (28, 28, 3)}, "image_size should be one number of pixels, or height and width"),
        ({"image_size": (28, 0)}, "28x0 pixels"),
    ],
)
def test_mistakes(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        create_model("capsnet", **settings)  # type: ignore[arg-type]


def test_attacks_and_their_checks_pass_through_the_backbone() -> None:
    images = TensorImages(torch.rand(4, 3, 64, 64), torch.tensor([0, 1, 2, 0]), ("a", "b", "c"))
    model = create_model("capsnet", image_size=64, channels=3, classes=3, **SMALL["capsnet"]).eval()
    found = attack_model(model, images, ("fgsm",), (0.05,))
    assert found["images"] == 4
    assert found["gradient"]
