"""Image folders and CSV files: valid, broken and malicious ones."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from torchcaps.data import datasets, load_dataset, open_images
from torchcaps.errors import TorchcapsError

COLORS = {"blue": (10, 20, 250), "red": (250, 20, 10)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes, ten and twenty pictures in various formats and sizes."""
    for (name, color), count in zip(COLORS.items(), (10, 20), strict=True):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(count):
            suffix = ("png", "jpg", "bmp", "webp")[number % 4]
            picture = Image.new("RGB", (20 + number, 40), color)
            picture.putpixel((number, 20), (number, number, number))  # no two are the same
            picture.save(tmp_path / "pets" / name / f"{number}.{suffix}", quality=100)
    return tmp_path / "pets"


def test_folder(root: Path) -> None:
    (root / "notes.txt").write_text("not a class")
    (root / ".hidden").mkdir()
    (root / "red" / "readme.md").write_text("not a picture")
    folder = open_images(root, size=16)
    assert folder.skipped == ()
    assert folder.train.class_names == folder.test.class_names == ("blue", "red")
    assert folder.train.shape == (3, 16, 16)
    assert Counter(folder.test.labels.tolist()) == {0: 2, 1: 4}  # a fifth of each class
    assert Counter(folder.train.labels.tolist()) == {0: 8, 1: 16}
    batch = folder.train.batch(torch.arange(24))
    for label, name in enumerate(COLORS):
        mean = batch.images[batch.labels == label].mean(dim=(0, 2, 3)) * 255
        torch.testing.assert_close(mean, torch.tensor(COLORS[name], dtype=torch.float32), atol=12, rtol=0)


def test_grey(root: Path) -> None:
    folder = open_images(root, size=8, grey=True)
    assert folder.train.shape == (1, 8, 8)


def test_split_is_a_function_of_the_seed(root: Path) -> None:
    first, again, other = (open_images(root, size=24, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.test.images, again.test.images)
    assert not torch.equal(first.test.images, other.test.images)


def test_middle_square_is_kept(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            pixels = np.zeros((30, 90), dtype="u1")
            pixels[:, 30:60] = 255  # white in the middle third
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    images = open_images(tmp_path, size=10, grey=True).train.images
    assert int(images[..., 1:-1].min()) == 255  # the outermost pixels mix with what lies beyond


def test_table(root: Path) -> None:
    rows = [f"{path.relative_to(root)},{path.parent.name}-pet" for path in sorted(root.glob("*/*.*"))]
    table = root / "labels.csv"
    table.write_text("path,label\n" + "\n".join(rows) + "\n")
    folder = open_images(table, size=16)
    assert folder.train.class_names == ("blue-pet", "red-pet")
    assert len(folder.train) + len(folder.test) == 30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "needs the columns 'path' and 'label'"),
        (b"", "needs the columns"),
        (b"path,label\nx.png,\n", "line 2: path or label is empty"),
        (b"path,label\nx.png\n", "line 2: path or label is empty"),
        (b"path,label\n\xff\xfe\n", "cannot be read as a CSV file"),
        (b"path,label\nnothere.png,a\n", "has pictures of 0 classes"),
    ],
)
def test_bad_table(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(TorchcapsError, match=message):
        open_images(tmp_path / "labels.csv")


def test_broken_files_are_listed_and_skipped_or_stop(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = (root / "red" / "0.png").read_bytes()
    (root / "red" / "cut.png").write_bytes(good[: len(good) // 2])
    (root / "red" / "empty.jpg").touch()
    (root / "red" / "text.png").write_text("not a picture")
    with caplog.at_level(logging.WARNING):
        folder = open_images(root, size=16)
    assert len(folder.skipped) == 3
    assert len(folder.train) + len(folder.test) == 30
    for name in ("cut.png", "empty.jpg", "text.png"):
        assert any(name in problem for problem in folder.skipped)
        assert name in caplog.text
    with pytest.raises(TorchcapsError, match=r"3 of 33 pictures cannot be used; the first: .*cut\.png"):
        open_images(root, size=16, strict=True)


def test_links_that_lead_outside_are_not_followed(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (9, 9)).save(secret)
    (root / "red" / "link.png").symlink_to(secret)
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "elsewhere" / "a.png")
    (root / "linked-class").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    folder = open_images(root, size=16)
    assert folder.train.class_names == ("blue", "red")
    assert sorted("is outside" in problem for problem in folder.skipped) == [True, True]
    table = root / "labels.csv"
    table.write_text(f"path,label\n../secret.png,a\n{secret},b\nred/0.png,a\nblue/0.png,b\n")
    with pytest.raises(TorchcapsError, match="is outside"):
        open_images(table, strict=True)


def test_link_inside_is_fine(root: Path) -> None:
    (root / "red" / "again.png").symlink_to(root / "red" / "0.png")
    assert open_images(root, size=16).skipped == ()


def test_picture_that_claims_to_be_huge(root: Path) -> None:
    # A valid header of a 30,000 x 30,000 bitmap, and no pixels.
    picture = bytearray((root / "red" / "2.bmp").read_bytes())
    picture[18:26] = (30_000).to_bytes(4, "little") * 2
    (root / "red" / "huge.bmp").write_bytes(picture)
    assert any("30000x30000" in problem or "huge.bmp" in problem for problem in open_images(root, size=16).skipped)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 10_000), value=st.integers(0, 255), name=st.sampled_from(["0.png", "1.jpg", "2.bmp", "3.webp"])
)
def test_damaged_pictures_never_crash(root: Path, place: int, value: int, name: str) -> None:
    from torchcaps.data.io.pictures import read_picture

    content = bytearray((root / "red" / name).read_bytes())
    content[place % len(content)] = value
    path = root / "red" / f"damaged-{name}"
    path.write_bytes(content)
    result = read_picture(path, boundary=root.resolve(), size=8, grey=False)
    assert isinstance(result, str) or result.shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root / "none", "is neither a folder nor a CSV file"),
        (lambda root: root / "red", "has pictures of 0 classes, at least 2"),
    ],
)
def test_invalid_folders(root: Path, make: object, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        open_images(make(root))  # type: ignore[operator]


def test_class_with_one_picture(root: Path) -> None:
    (root / "green").mkdir()
    Image.new("RGB", (9, 9)).save(root / "green" / "a.png")
    with pytest.raises(TorchcapsError, match="class 'green' has one picture only"):
        open_images(root)


@pytest.mark.parametrize("size", [0, 7, 513, -3])
def test_size_out_of_range(root: Path, size: int) -> None:
    with pytest.raises(TorchcapsError, match="choose 8 to 512"):
        open_images(root, size=size)


def test_by_name(root: Path) -> None:
    name = f"images:{root},size=12,grey=1,seed=3"
    record = datasets.get(name)
    assert record.name == name
    assert record.shape == (1, 12, 12)
    assert record.class_names == ("blue", "red")
    assert len(load_dataset(name, "test")) == record.splits["test"] == 6
    expected = open_images(root, size=12, grey=True, seed=3).train
    assert torch.equal(
        load_dataset(name, "train").batch(torch.arange(3)).images, expected.batch(torch.arange(3)).images
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("images", "write images:FOLDER"),
        ("images:", "write images:FOLDER"),
        ("images:x,sise=3", "setting of images 'sise' is unknown: did you mean 'size'"),
        ("images:x,size=big", "should be written size=NUMBER"),
        ("images:x,size=-3", "should be written size=NUMBER"),
    ],
)
def test_bad_name(name: str, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        datasets.get(name)


def test_folder_given_as_a_name(root: Path) -> None:
    with pytest.raises(TorchcapsError, match=f"write images:{root}"):
        datasets.get(str(root))
