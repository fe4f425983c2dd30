"""The size, color mode, class balance and name of an image folder."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from PIL import Image

from torchcaps.data import datasets, load_dataset, open_images
from torchcaps.data.datasets.image_folder import divide_by_class, open_named
from torchcaps.data.datasets.image_folder_fit import Balance, fit_pictures
from torchcaps.train import new_run_path, resolve


def fill(folder: Path, sizes: list[tuple[int, int]], mode: str = "RGB") -> list[Path]:
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.png" for number in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        Image.new(mode, size, number if mode == "L" else (number, 9, 200)).save(path)
    return paths


@pytest.mark.parametrize(
    ("shorter", "size"),
    [([9, 10, 300], 28), ([31, 31, 31], 28), ([32, 39, 80], 32), ([47, 48, 50], 48), ([4000] * 3, 128)],
)
def test_size_is_chosen_from_the_median_image(tmp_path: Path, shorter: list[int], size: int) -> None:
    paths = fill(tmp_path / "a", [(side, side + 100) for side in shorter])
    fit = fit_pictures(paths)
    assert (fit.size, fit.grey) == (size, False)
    assert str(sorted(shorter)[1]) in fit.reason


def test_gray_if_all_readable_images_are_gray(tmp_path: Path) -> None:
    grey, color = fill(tmp_path / "a", [(40, 40)] * 3, "L"), fill(tmp_path / "b", [(40, 40)])
    (tmp_path / "broken.png").write_text("none")
    assert fit_pictures([*grey, tmp_path / "broken.png", tmp_path / "missing.png"]).grey
    assert not fit_pictures([*grey, *color]).grey
    assert fit_pictures([tmp_path / "broken.png"]).size == 28


def test_a_run_keeps_the_chosen_size_and_mode(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        fill(tmp_path / "pets" / name, [(36, 50)] * 5, "L")
    data = f"images:{tmp_path / 'pets'}"
    config = resolve(model="capsnet", data=data)
    assert config.data == f"{data},size=32,grey=1"
    assert config.image_shape == (1, 32, 32)
    Image.new("RGB", (900, 900)).save(tmp_path / "pets" / "cat" / "later.png")
    assert datasets.get(config.data).shape == (1, 32, 32)
    asked = resolve(model="capsnet", data=f"{data},size=40,seed=3")
    assert asked.data == f"{data},size=40,grey=1,seed=3"
    name = new_run_path(Path("runs"), config).name
    assert not set(name) & set(':\\/,=*?"<>|'), "a name that no system refuses"


def test_the_first_test_images_are_of_all_classes() -> None:
    labels = torch.arange(4).repeat_interleave(100)
    training, test = divide_by_class(labels, "abcd", seed=0)
    assert labels[test[:20]].unique().tolist() == [0, 1, 2, 3]
    assert sorted([*training.tolist(), *test.tolist()]) == list(range(400))
    assert torch.bincount(labels[test]).tolist() == [20] * 4


def test_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cat", "dog"):
        fill(tmp_path / name, [(30, 30)] * 3)
    text = str(tmp_path)
    first = open_named(text)
    assert load_dataset(f"images:{text}", "test") is first.test
    assert load_dataset(datasets.get(f"images:{text}").name, "train") is first.train


def test_balance(tmp_path: Path) -> None:
    fill(tmp_path / "cat", [(30, 30)] * 100)
    fill(tmp_path / "dog", [(30, 30)] * 10)
    balance = open_images(tmp_path, size=8).balance
    assert balance == Balance(("cat", "dog"), (80, 8), (20, 2))
    few, imbalanced = balance.warnings()
    assert "fewer than 20 training images: 'dog' (8)" in few
    assert "Always predicting 'cat' gives a test accuracy of 91%" in imbalanced
    assert Balance(("a", "b"), (60, 20), (15, 5)).warnings() == []
    many = Balance(tuple("abcdefgh"), (2,) * 8, (1,) * 8).warnings()
    assert len(many) == 1
    assert "'e' (2) and 3 more" in many[0]


def test_a_large_set_gets_smaller_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("torchcaps.data.datasets.image_folder_fit")
    monkeypatch.setattr(module, "MOST_BYTES", 3 * 3 * 64 * 64)
    fit = fit_pictures(fill(tmp_path / "a", [(300, 300)] * 3))
    assert fit.size == 64
    assert "keeps 3 of them in a gigabyte of memory" in fit.reason
