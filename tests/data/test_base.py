"""Properties of every dataset, the registry, and the cache of generated datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from torchcaps.data import DatasetRecord, ImageSet, TensorImages, datasets, load_dataset, split_off
from torchcaps.data.base import chunks
from torchcaps.data.io.cache import cached
from torchcaps.data.registry import dataset_status
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
        "mnist-40-moving",
        "fashion-mnist",
        "cifar-10",
        "affnist",
        "affnist-45",
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


def some_images(count: int = 10) -> TensorImages:
    images = torch.randint(0, 256, (count, 3, 4, 4)).to(torch.uint8)
    images[0, 0, 0, 0], images[0, 0, 0, 1] = 0, 255
    return TensorImages(images, torch.arange(count) % 2, ("even", "odd"), {"number": torch.arange(count)})


def test_tensor_images() -> None:
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
        (torch.zeros(2, 1, 3, 3, dtype=torch.int64), torch.zeros(2), "must be uint8 or float32"),
        (torch.zeros(2, 3, 3, dtype=torch.uint8), torch.zeros(2), "must be uint8 or float32"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.zeros(3), "2 images but 3 labels"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 2]), "labels run from 0 to 2"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([-1, 0]), "labels run from -1 to 0"),
    ],
)
def test_images_and_labels_that_do_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        TensorImages(images, labels, ("a", "b"))


def test_split_off() -> None:
    whole = some_images()
    rest, part = split_off(whole, 3, seed=0)
    numbers = [images.batch(torch.arange(len(images))).factors["number"].tolist() for images in (rest, part)]
    assert len(numbers[1]) == 3
    assert sorted(numbers[0] + numbers[1]) == list(range(10))
    again = split_off(whole, 3, seed=0)[1]
    assert again.batch(torch.arange(3)).factors["number"].tolist() == numbers[1]
    for count in (0, 10, 11, -1):
        with pytest.raises(TorchcapsError, match="neither part may be empty"):
            split_off(whole, count, seed=0)


def test_chunks() -> None:
    assert [list(range(10))[part] for part in chunks(10, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


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


def test_dataset_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    states = {record.name: dataset_status(record).state for record in datasets}
    assert states["mnist"] == states["multimnist"] == states["smallnorb-azimuth"] == "to fetch"
    assert states["glyphs"] == states["turntable"] == "generated"
    assert states["affnist-official"] == "by hand"
    (tmp_path / "own" / "mnist").mkdir(parents=True)
    for file in datasets.get("mnist").files:
        (tmp_path / "own" / "mnist" / file.name).write_bytes(b"12")
    status = dataset_status(datasets.get("multimnist"))
    assert (status.state, status.folder, status.size) == ("here", tmp_path / "own" / "mnist", 8)


PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)  # (H, W, C)


class Pairs(Dataset[Any]):
    """A map-style dataset of the given images."""

    def __init__(self, *images: Any, labels: tuple[Any, ...] | None = None) -> None:
        self.pairs = list(zip(images, labels or range(len(images)), strict=True))

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index]


def test_from_dataset_takes_every_common_kind_of_image() -> None:
    tensor = torch.from_numpy(PIXELS).permute(2, 0, 1)
    images = ImageSet.from_dataset(Pairs(tensor, PIXELS, Image.fromarray(PIXELS)))
    assert images.shape == (3, 4, 5)
    assert images.class_names == ("0", "1", "2")
    batch = images.batch(torch.tensor([2, 0, 1]))
    assert batch.labels.tolist() == [2, 0, 1]
    for image in batch.images:
        assert torch.equal(image, tensor / 255)
    gray = PIXELS[..., 0]
    small = ImageSet.from_dataset(Pairs(torch.from_numpy(gray), gray, Image.fromarray(gray)))
    assert small.shape == (1, 4, 5)
    assert torch.equal(small.images[0], small.images[2])
    floats = ImageSet.from_dataset(Pairs(tensor / 255, (PIXELS / 255).astype(np.float64)))
    assert torch.equal(floats.batch(torch.tensor([0])).images[0], tensor / 255)
    assert torch.allclose(floats.images[0], floats.images[1])
    rest, part = split_off(images, 1, seed=0)
    assert (len(rest), len(part)) == (2, 1)


def test_from_dataset_takes_labels_and_class_names() -> None:
    dataset = TensorDataset(torch.rand(4, 1, 8, 8), torch.tensor([0, 2, 0, 1]))
    assert ImageSet.from_dataset(dataset).batch(torch.arange(4)).labels.tolist() == [0, 2, 0, 1]
    assert ImageSet.from_dataset(dataset, class_names=("a", "b", "c")).class_names == ("a", "b", "c")
    dataset.classes = ["x", "y", "z"]  # type: ignore[attr-defined]  # as torchvision's datasets have them
    assert ImageSet.from_dataset(dataset).class_names == ("x", "y", "z")
    with pytest.raises(TorchcapsError, match="labels run from 0 to 2, but there are 2 classes"):
        ImageSet.from_dataset(dataset, class_names=("a", "b"))


GOOD = torch.zeros(1, 4, 4)


class Stream(IterableDataset[Any]):
    """A dataset that cannot be indexed, although it has a length."""

    def __iter__(self) -> Any:
        return iter([(GOOD, 0)])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Pairs(GOOD, GOOD + 1.5), r"image 1 has values from 1.5 to 1.5: expected floats in \[0, 1\]"),
        (Pairs(GOOD - 2), "image 0 has values from -2 to -2"),
        (Pairs(GOOD * float("nan")), "image 0 has values from nan to nan"),
        (Pairs(GOOD, torch.zeros(1, 4, 5)), r"image 1 is torch.float32 \(1, 4, 5\), but image 0 is .* \(1, 4, 4\)"),
        (Pairs(GOOD, GOOD.to(torch.uint8)), "image 1 is torch.uint8 .*, but image 0 is torch.float32"),
        (Pairs(GOOD.long()), "image 0 should be uint8 or floats"),
        (Pairs(torch.zeros(2, 1, 4, 4)), r"image 0 should have the shape \(C, H, W\), got \(2, 1, 4, 4\)"),
        (Pairs(Image.new("RGBA", (4, 4))), "image 0 has PIL mode 'RGBA': convert it"),
        (Pairs("picture.png"), "image 0 should be a tensor, a NumPy array or a PIL image, got str"),
        (Pairs(GOOD, labels=(0.5,)), "label 0 should be an integer class index, got 0.5"),
        (Pairs(GOOD, labels=("cat",)), "label 0 should be an integer class index, got 'cat'"),
        (Pairs(GOOD, labels=(-1,)), "labels run from -1 to -1"),
        (TensorDataset(torch.zeros(2, 1, 4, 4)), r"item 0 of the dataset is not an \(image, label\) pair"),
        (Pairs(), "the dataset is empty"),
        (Stream(), "expected a map-style dataset with len"),
    ],
)
def test_from_dataset_names_what_is_wrong(dataset: Any, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        ImageSet.from_dataset(dataset)


def test_from_dataset_checks_the_memory_before_it_reads() -> None:
    class Huge(Pairs):
        def __len__(self) -> int:
            return 1 << 60

    with pytest.raises(TorchcapsError, match="more than this machine has: use smaller images or a subset"):
        ImageSet.from_dataset(Huge(GOOD))


def test_temporary_datasets_are_gone_after_the_block() -> None:
    with datasets.temporary(some_images()) as name:
        assert load_dataset(name) is datasets.get(name).open("train")
    with pytest.raises(TorchcapsError, match="existed only in the Python process that trained on it"):
        datasets.get(name)
