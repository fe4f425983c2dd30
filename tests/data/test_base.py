"""What every dataset promises, from its record; the registry; the cache of drawn sets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchcaps.data import DatasetRecord, MemoryImages, datasets, load_dataset, split_off
from torchcaps.data.base import pieces
from torchcaps.data.inventory import take_stock
from torchcaps.data.io.cache import cached
from torchcaps.data.transforms import Augmentation
from torchcaps.errors import TorchcapsError


@pytest.mark.parametrize("record", list(datasets), ids=lambda record: record.name)
def test_record_is_complete(record: DatasetRecord) -> None:
    assert record.description
    assert record.licence
    assert record.citation
    assert {"train", "test"} <= set(record.splits)
    assert len(set(record.class_names)) == len(record.class_names) >= 2
    channels, height, width = record.shape
    changed = Augmentation(record.augmentation)(torch.rand(2, channels, height, width), torch.Generator())
    assert changed.shape == (2, *record.input_shape)
    for file in record.files:
        algorithm, value = file.checksum.split(":")
        assert len(value) == {"sha256": 64, "sha1": 40, "md5": 32}[algorithm]
        assert file.size > 0
    assert bool(record.files) == bool(record.sources) or record.folder == "smallnorb-jpeg", "which users bring along"


def test_the_papers_sets_are_there() -> None:
    expected = [
        "mnist",
        "mnist-40",
        "fashion-mnist",
        "cifar-10",
        "affnist",
        "multimnist",
        "smallnorb",
        "turntable",
        "glyphs",
    ]
    assert set(expected) <= set(datasets.names())


def test_unknown_names() -> None:
    with pytest.raises(TorchcapsError, match="did you mean 'fashion-mnist'"):
        load_dataset("fashon-mnist")
    with pytest.raises(TorchcapsError, match="split of glyphs 'tset' is unknown: did you mean 'test'"):
        load_dataset("glyphs", "tset")


def some_images(count: int = 10) -> MemoryImages:
    images = torch.randint(0, 256, (count, 3, 4, 4)).to(torch.uint8)
    images[0, 0, 0, 0], images[0, 0, 0, 1] = 0, 255
    return MemoryImages(images, torch.arange(count) % 2, ("even", "odd"), {"number": torch.arange(count)})


def test_memory_images() -> None:
    whole = some_images()
    batch = whole.batch(torch.tensor([7, 0, 7]))
    assert batch.factors["number"].tolist() == [7, 0, 7]
    assert batch.labels.tolist() == [1, 0, 1]
    assert torch.equal(batch.images, whole.images[[7, 0, 7]] / 255)
    assert batch.images[1, 0, 0, :2].tolist() == [0, 1]  # exactly
    assert whole.where(whole.labels == 1).factors["number"].tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 1, 3, 3), torch.zeros(2), "must be bytes"),
        (torch.zeros(2, 3, 3, dtype=torch.uint8), torch.zeros(2), "must be bytes"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.zeros(3), "2 images but 3 labels"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 2]), "labels run from 0 to 2"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([-1, 0]), "labels run from -1 to 0"),
    ],
)
def test_images_and_labels_that_do_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        MemoryImages(images, labels, ("a", "b"))


def test_split_off() -> None:
    whole = some_images()
    rest, part = split_off(whole, 3, seed=0)
    numbers = [images.batch(torch.arange(len(images))).factors["number"].tolist() for images in (rest, part)]
    assert len(numbers[1]) == 3
    assert sorted(numbers[0] + numbers[1]) == list(range(10))
    again = split_off(whole, 3, seed=0)[1]
    assert again.batch(torch.arange(3)).factors["number"].tolist() == numbers[1]
    for count in (0, 10, 11, -1):
        with pytest.raises(TorchcapsError, match="some must be left on both sides"):
            split_off(whole, count, seed=0)


def test_pieces() -> None:
    assert [list(range(10))[part] for part in pieces(10, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_cached_is_made_once_and_again_when_damaged(tmp_path: Path) -> None:
    path, made = tmp_path / "deep" / "a.safetensors", []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"a": torch.arange(6).reshape(2, 3).T, "b": torch.zeros(2, dtype=torch.uint8)}

    for _ in range(2):
        found = cached(path, "recipe 1", make)
        assert found["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert len(made) == 1
    cached(path, "recipe 2", make)
    assert len(made) == 2
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    for damaged in (bytes(content), bytes(content[:-1]), b"", b"\xff" * 100, b"\xff" * 7 + b"\x7f" + b"{}"):
        path.write_bytes(damaged)
        before = len(made)
        assert cached(path, "recipe 2", make)["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert len(made) == before + 1
    save_file({"a": torch.zeros(1)}, path)  # somebody else's file
    assert cached(path, "recipe 2", make)["b"].shape == (2,)
    assert [file.name for file in path.parent.iterdir()] == ["a.safetensors"]


def test_stock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    states = {record.name: take_stock(record).state for record in datasets}
    assert states["mnist"] == states["multimnist"] == states["smallnorb-azimuth"] == "to fetch"
    assert states["glyphs"] == states["turntable"] == "generated"
    assert states["affnist-official"] == "by hand"
    (tmp_path / "own" / "mnist").mkdir(parents=True)
    for file in datasets.get("mnist").files:
        (tmp_path / "own" / "mnist" / file.name).write_bytes(b"12")
    stock = take_stock(datasets.get("multimnist"))
    assert (stock.state, stock.folder, stock.size) == ("here", tmp_path / "own" / "mnist", 8)
