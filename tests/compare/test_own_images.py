"""A comparison on a user's own images, from the folder to the report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_bench import Run, run  # noqa: F401  (a fixture)
from torchcaps.cli.main import main
from torchcaps.compare.own_images import MODELS, default_epochs, summarize_images
from torchcaps.data.datasets.image_folder import display_name
from torchcaps.errors import TorchcapsError
from torchcaps.models import models

SMALL = ["--steps", "2", "--no-robustness", "--device", "cpu", "--out", "cmp"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Many bright pictures, few dark ones, and a broken file."""
    generator = np.random.default_rng(0)
    for name, count, low in (("bright", 50, 150), ("dark", 10, 0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(low, low + 100, (33, 40, 3), dtype="u1")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "dark" / "broken.png").write_text("none")
    return tmp_path / "photos"


def test_from_folder_to_report(run: Run, photos: Path, tmp_path: Path) -> None:  # noqa: F811
    printed = " ".join(run("compare", "convnet-avg:filters=4", "--images", "photos", *SMALL).split())
    assert "60 images of 2 classes, resized to 32x32 pixels in color" in printed
    assert "half of them have a shorter side of at least 33 pixels" in printed
    assert "12 of them (20% of each class, chosen by seed 0) are the test set" in printed
    assert "│ dark │ 8 │ 2 │" in printed
    page = (tmp_path / "cmp" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Comparison on photos</h1>" in page
    assert "<td>dark</td><td>8</td><td>2</td>" in page
    assert "imbalanced: &#x27;bright&#x27; has 40 training images" in page
    assert "--balance weights or sample" in page
    assert "broken.png cannot be read" in page
    settings = (tmp_path / "cmp" / "convnet-avg-filters-4-seed0" / "config.yaml").read_text(encoding="utf-8")
    assert f"data: images:{photos},size=32,grey=0" in settings.replace("\n  ", " "), "absolute"
    again = json.loads(run("compare", "convnet-avg:filters=4", "--images", "photos", *SMALL, "--json"))
    assert again["convnet-avg:filters=4"][0]["test_images"] == 12


@pytest.mark.parametrize("command", ["compare", "train"])
def test_a_contact_sheet_is_written_before_training(
    command: str, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The contact sheet is written before training starts."""
    monkeypatch.chdir(photos.parent)
    module = "torchcaps.compare.job" if command == "compare" else "torchcaps.train"
    monkeypatch.setattr(f"{module}.fit_run", stop_training)
    model = ["convnet-avg:filters=4"] if command == "compare" else ["convnet-avg", "--set", "filters=4"]
    monkeypatch.setattr(
        sys, "argv", ["torchcaps", command, *model, "--images", "photos,size=28", "--steps", "2", "--out", "here"]
    )
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert "training began" in said.err
    assert f"Contact sheet of the network's input: {Path('here', 'pictures.png')}" in said.out
    with Image.open("here/pictures.png") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape[0] == 32 + 2 * 60 + 4  # a row for each class
    rows = pixels[32:88, 200:256].mean(), pixels[92:148, 200:256].mean()
    assert rows[0] > 150 > 100 > rows[1]  # bright pictures above, dark ones below


def stop_training(*_: object, **__: object) -> None:
    raise TorchcapsError("training began")


def test_warnings_reach_the_user(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr(sys, "argv", ["torchcaps", "compare", "convnet-avg:filters=4", "--images", "photos", *SMALL])
    with pytest.raises(SystemExit):
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert "Warning: classes with fewer than 20 training images: 'dark' (8)" in said
    assert "test accuracy of 83%: compare with that; --balance weights or sample can help" in said


def test_training_prints_the_same_warnings(run: Run, photos: Path) -> None:  # noqa: F811
    printed = run("train", "convnet-avg", "--set", "filters=4", "--images", "photos", "--steps", "2", "--out", "run")
    assert "60 images of 2 classes, resized to 32x32 pixels in color" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "no model was given"),
        (["compare", "capsnet", "--images", "photos", "--data", "mnist"], "both name a dataset"),
        (["compare", "--images", "nowhere"], "nowhere is neither a folder nor a CSV file"),
        (["train", "capsnet", "--images", "photos", "--data", "mnist"], "both name a dataset"),
    ],
)
def test_mistakes(
    photos: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_default_models(photos: Path) -> None:
    assert all(name.partition(":")[0] in models for name in MODELS)
    assert default_epochs(f"images:{photos},size=8,grey=0") == 40  # 48 pictures
    assert default_epochs("glyphs") == 5  # 6,000 images
    assert display_name("images:a/b,size=8") == "b"
    assert display_name("mnist") == "mnist"
    asked = summarize_images(f"images:{photos},size=16,seed=2")
    assert "16x16 pixels in color (as requested)" in asked.text
    assert "seed 2" in asked.text


def test_fine_tuning_of_shipped_weights_says_what_is_kept(run: Run, photos: Path) -> None:  # noqa: F811
    given = ("train", "--from", "convnet-avg-mnist-laptop", "--images", "photos", "--steps", "1", "--out", "tuned")
    printed = " ".join(run(*given).split())
    assert "resized to 28x28 pixels in gray (as for convnet-avg-mnist-laptop)" in printed
    assert "weights of convnet-avg-mnist-laptop are kept; reinitialized: 2 that depend on the classes (" in printed
    again = " ".join(run("train", "--from", "tuned", "--images", "photos", "--steps", "1", "--out", "again").split())
    assert "weights of tuned are kept, because the classes are the same" in again
