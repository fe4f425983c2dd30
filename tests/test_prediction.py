"""Predictions for image files: correct, in order, and with other files in the folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps
from tests.conftest import Command
from torchcaps.data.base import as_floats
from torchcaps.errors import TorchcapsError
from torchcaps.prediction import Prediction, Predictions, draw_least_confident, predict, write_csv
from torchcaps.pretrained import load_samples

TAG = "capsnet-mnist-laptop"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test digits as PNG files, some larger and in color, and other files."""
    folder = tmp_path_factory.mktemp("digits")
    samples = load_samples("mnist")
    assert samples is not None
    for number in range(20):
        picture = Image.fromarray(samples.images[number, 0].numpy())
        if number % 2:
            picture = picture.resize((84, 84), Image.Resampling.BILINEAR).convert("RGB")
        place = folder / ("more" if number > 9 else "")
        place.mkdir(exist_ok=True)
        picture.save(place / f"{number:02}-is-{int(samples.labels[number])}.png")
    (folder / "broken.png").write_bytes(b"\x89PNG and nothing more")
    (folder / "notes.txt").write_text("not a picture")
    (folder / ".hidden").mkdir()
    Image.new("L", (28, 28)).save(folder / ".hidden" / "a.png")
    return folder


def test_digits_are_recognised_and_a_broken_file_is_named(digits: Path) -> None:
    found = predict(TAG, digits)
    assert len(found.answers) == 20
    right = [found.top(each, 1)[0][0] == each.path.stem[-1] for each in found.answers]
    assert sum(right) >= 19
    assert [path.name for path in found.broken] == ["broken.png"]
    assert "broken.png cannot be read" in next(iter(found.broken.values()))
    assert [each.path for each in found.answers] == sorted(each.path for each in found.answers)


def test_as_the_model_answers_for_the_same_pixels(digits: Path) -> None:
    model = torchcaps.create_model("capsnet", pretrained="mnist-laptop")
    found = predict(model, digits / sorted(path.name for path in digits.glob("00*"))[0])
    samples = load_samples("mnist")
    assert samples is not None
    scores = model(as_floats(samples.images[:1])).scores[0].detach().double().numpy()
    odds = scores / (1 - scores)
    np.testing.assert_allclose(found.answers[0].probabilities, odds / odds.sum(), rtol=1e-3, atol=1e-5)


def test_files_by_name_and_a_model_without_names(digits: Path) -> None:
    model = torchcaps.create_model("convnet-avg", size="laptop", channels=3, image_size=32, classes=4)
    found = predict(model, [digits / "broken.png", *sorted(digits.glob("0[12]*"))])
    assert found.class_names == ("0", "1", "2", "3")
    assert len(found.answers) == 2
    assert all(abs(sum(each.probabilities) - 1) < 1e-5 for each in found.answers)


def test_several_files_and_directories(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.png").symlink_to(digits / "broken.png")
    first, second = sorted(digits.glob("00*"))[0], digits / "more"
    found = predict(TAG, [first, second, tmp_path / "nowhere.png", tmp_path / "other"])
    assert [each.path for each in found.answers] == [first, *sorted(second.glob("*"))]
    assert set(found.broken) == {tmp_path / "nowhere.png", tmp_path / "other" / "link.png"}
    assert "outside" in found.broken[tmp_path / "other" / "link.png"], "links in a directory must not leave it"
    with pytest.raises(TorchcapsError, match="nowhere does not exist: give an image file"):
        predict(TAG, [tmp_path / "nowhere"])


def test_least_sure_and_table(tmp_path: Path) -> None:
    made = Predictions(
        ("cat", "dog"),
        tuple(Prediction(Path(f"{p}.png"), (p, 1 - p)) for p in (0.9, 0.55, 0.1, 0.45)),
        {Path("x.png"): "x.png cannot be read"},
    )
    assert [each.path.name for each in made.least_confident(3)] == ["0.55.png", "0.45.png", "0.9.png"]
    assert made.top(made.answers[2], 2) == [("dog", pytest.approx(0.9)), ("cat", 0.1)]
    write_csv(made, tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8")))
    assert [row["answer"] for row in rows] == ["cat", "cat", "dog", "dog", ""]
    assert rows[-1]["problem"] == "x.png cannot be read"
    assert float(rows[0]["dog"]) == pytest.approx(0.1)


def test_the_sheet_shows_the_pictures(digits: Path, tmp_path: Path) -> None:
    model = torchcaps.create_model("capsnet", pretrained="mnist-laptop")
    found = predict(model, digits)
    assert draw_least_confident(model, found, tmp_path / "sheet.png", count=8) == 8
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("L"))
    assert 0.1 < (sheet < 64).mean() < 0.8  # black grounds of the digits: not an empty page


@pytest.mark.parametrize(
    ("model", "pictures", "message"),
    [
        ("capsnet-mnist-laptob", ".", "did you mean 'capsnet-mnist-laptop'"),
        (TAG, "nowhere", "nowhere does not exist: give an image file, or a directory"),
        (TAG, "empty", "has no images"),
        (TAG, "text.png", "no image could be read; the first error: "),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, pictures: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.png").write_text("not a picture")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TorchcapsError, match=message):
        predict(model, pictures)


def test_two_cameras_are_no_picture() -> None:
    model = torchcaps.create_model("capsnet", channels=2, size="laptop")
    with pytest.raises(TorchcapsError, match="read as grayscale or RGB images"):
        predict(model, ".")


def test_command(torchcaps_command: Command, digits: Path, tmp_path: Path) -> None:
    done = torchcaps_command(
        "predict", TAG, str(digits), "--csv", "out.csv", "--top", "2", "--least-sure", "least-sure.png"
    )
    assert done.returncode == 0, done.stderr
    assert "broken.png cannot be read" in done.stderr
    assert "second" in done.stdout
    assert "Least confident predictions (20): least-sure.png" in done.stdout
    assert (tmp_path / "least-sure.png").is_file()
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 22
    one = torchcaps_command("predict", TAG, *map(str, sorted((digits / "more").glob("*"))), "--json")
    assert len(json.loads(one.stdout)["pictures"]) == 10
    written = {path.name for path in tmp_path.iterdir()}
    assert written <= {"least-sure.png", "out.csv"}, "no file that nobody asked for"


def test_same_as_in_training(tmp_path: Path) -> None:
    """A picture of the folder that a model is trained on reaches it as the very pixels of the dataset."""
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            pixels = generator.integers(0, 255, (41, 63, 3), dtype="u1")
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    from torchcaps.data import open_images
    from torchcaps.data.io.pictures import picture_form, read_pictures

    folder = open_images(tmp_path)
    size, grey = picture_form(folder.train.shape)
    read = read_pictures(sorted(tmp_path.glob("*/*.png")), boundary=None, size=size, grey=grey)
    known = {image.numpy().tobytes() for image in torch.cat([folder.train.images, folder.test.images])}
    assert {image.numpy().tobytes() for image in read if isinstance(image, torch.Tensor)} == known


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    Image.new("L", (28, 28)).save(tmp_path / "secret.png")
    Image.new("L", (28, 28)).save(tmp_path / "inside" / "good.png")
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / "secret.png")
    found = predict(TAG, tmp_path / "inside")
    assert [each.path.name for each in found.answers] == ["good.png"]
    assert "is outside" in found.broken[tmp_path / "inside" / "link.png"]
    assert len(predict(TAG, tmp_path / "inside" / "link.png").answers) == 1, "a file that was named is meant"
