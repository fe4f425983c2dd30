"""smallNORB from JPEG images: the order, labels and factors of the official files."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers import dataset_files
from torchcaps.data import datasets, load_dataset
from torchcaps.data.datasets import smallnorb
from torchcaps.data.datasets.viewpoints import CATEGORIES
from torchcaps.data.registry import BY_HAND, dataset_status
from torchcaps.errors import TorchcapsError

REAL = Path(os.environ.get("TORCHCAPS_DATA", "")) / "smallnorb-jpeg" / "train.zip"


def write_jpegs(folder: Path, *, side: int = 96, swap: bool = False) -> dict[str, np.ndarray]:
    """Label files of twelve pairs, and smooth pictures of them: one gray level for each picture."""
    arrays = dataset_files.write_toys(folder, smallnorb.STEMS["train"])
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        for index, (category, (instance, *_)) in enumerate(zip(arrays["cat"], arrays["info"], strict=True)):
            for camera, level in (("lt", 10 * index), ("rt", 10 * index + 5)):
                encoded = io.BytesIO()
                Image.new("L", (side, side), level).save(encoded, "JPEG", quality=75)
                name = CATEGORIES[(category + swap) % 5]
                archive.writestr(f"{index:06}_{name}_{instance:02}_{camera}.jpg", encoded.getvalue())
    return arrays


def test_pictures_and_factors(tmp_path: Path) -> None:
    arrays = write_jpegs(tmp_path)
    found = smallnorb.read_jpegs(tmp_path, "train")
    assert found["images"].shape == (12, 2, 48, 48)
    levels = found["images"].float().mean((2, 3))
    expected = torch.tensor([[10.0 * index, 10.0 * index + 5] for index in range(12)])
    assert (levels - expected).abs().max() <= 1, "left camera first, in the order of the label files"
    assert found["labels"].tolist() == arrays["cat"].tolist()
    assert found["elevation"].tolist() == [30 + 5 * (number % 9) for number in range(12)]


def test_names_that_contradict_the_labels_are_refused(tmp_path: Path) -> None:
    write_jpegs(tmp_path, swap=True)
    with pytest.raises(TorchcapsError, match="expected the 24 pictures that the label files describe"):
        smallnorb.read_jpegs(tmp_path, "train")


def test_pictures_of_another_size_are_refused(tmp_path: Path) -> None:
    write_jpegs(tmp_path, side=200)
    with pytest.raises(TorchcapsError, match="claims 200x200 pixels"):
        smallnorb.read_jpegs(tmp_path, "train")


def test_users_bring_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert dataset_status(datasets.get("smallnorb-jpeg")).state == BY_HAND
    with pytest.raises(TorchcapsError, match="Put the files into"):
        load_dataset("smallnorb-jpeg", "test")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="needs smallNORB as JPEG in TORCHCAPS_DATA")
def test_the_real_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    novel = load_dataset("smallnorb-jpeg-azimuth", "test")
    assert len(novel) == 16_200
    assert sorted(set(novel.factors["azimuth"].tolist())) == list(range(60, 300, 20))
    assert novel.labels.bincount().tolist() == [3240] * 5


def test_both_forms_are_opened_in_the_same_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = {"images": torch.zeros(100, 2, 4, 4, dtype=torch.uint8), "labels": torch.zeros(100, dtype=torch.int32)}
    ordered["instance"] = torch.arange(100) // 20
    monkeypatch.setattr(smallnorb, "cached", lambda *_: ordered)
    first, second = (load_dataset(name, "test").batch(torch.arange(100)) for name in ("smallnorb", "smallnorb-jpeg"))
    assert torch.equal(first.factors["instance"], second.factors["instance"])
    assert first.factors["instance"][:20].unique().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="needs smallNORB as JPEG in TORCHCAPS_DATA")
def test_the_first_images_are_a_representative_sample() -> None:
    """In the official order, the first 500 test images show one toy of each category from one elevation."""
    first = load_dataset("smallnorb-jpeg", "test").batch(torch.arange(500))
    for factor, values in (("instance", 5), ("elevation", 9), ("azimuth", 18), ("lighting", 6)):
        counts = first.factors[factor].unique(return_counts=True)[1]
        assert len(counts) == values
        assert counts.min() > 0.4 * 500 / values
    assert torch.bincount(first.labels, minlength=5).min() > 70
