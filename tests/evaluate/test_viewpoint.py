from __future__ import annotations

import pytest
import torch

from tests.helpers.small_models import SmallNet
from tests.reference import robustness as reference
from torchcaps.data import TensorImages, datasets
from torchcaps.data.datasets.viewpoints import FAMILIAR, split_by_viewpoint
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import measure_viewpoints
from torchcaps.evaluate.viewpoint import check_viewpoints


def toys(split: str) -> TensorImages:
    """Noise from every fourth azimuth, a few pixels larger than what the model sees."""
    generator = torch.Generator().manual_seed(len(split))
    azimuths = torch.tensor([0, 80, 160, 240, 320]).repeat(12)
    pixels = torch.randint(256, (60, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.randint(5, (60,), generator=generator)
    return TensorImages(pixels, labels, tuple("abcde"), {"azimuth": azimuths})


def test_errors_agree_with_one_image_at_a_time() -> None:
    model = SmallNet().eval()
    opened = split_by_viewpoint(toys, "azimuth")
    sets = {"familiar": opened("familiar"), "novel": opened("test")}
    result = measure_viewpoints(model, sets["familiar"], sets["novel"], "azimuth")
    for name, images in sets.items():
        right, degrees = [], []
        for index in range(len(images)):
            batch = images.batch(torch.tensor([index]))
            with torch.no_grad():
                scores = model(batch.images[:, :, 1:7, 1:7]).scores[0].tolist()
            right.append(reference.highest(scores, 1) == {int(batch.labels)})
            degrees.append(int(batch.factors["azimuth"]))
        assert result[f"{name}_images"] == len(right)
        assert result[f"{name}_error"] == pytest.approx(1 - sum(right) / len(right))
        assert result["by_degree"][name] == pytest.approx(reference.by_degree(right, degrees))
        assert {int(degree) in FAMILIAR["azimuth"] for degree in result["by_degree"][name]} == {name == "familiar"}


def test_other_images_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="which mnist does not separate: train on one of smallnorb-azimuth, "):
        check_viewpoints("mnist")
    for name in ("turntable-elevation", "smallnorb-azimuth"):
        assert name in datasets
        check_viewpoints(name)
    with pytest.raises(TorchcapsError, match="these images have no elevation, only azimuth"):
        measure_viewpoints(SmallNet(), toys("test"), toys("test"), "elevation")
