"""A run on the user's own images: from any directory, without its training folder, and on a new folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import Command
from torchcaps.cli.main import main
from torchcaps.data import TensorImages
from torchcaps.data.datasets.image_folder import relocated
from torchcaps.demo.served import load_run_models
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_folder, evaluate_run
from torchcaps.evaluate.folder import calibration, mistake_sheet, per_class
from torchcaps.prediction import predict
from torchcaps.train import RunFolder, fit_run, move_images, new_run, open_run, resolve
from torchcaps.train.run_images import ErrorReference, read_error_reference, read_samples

SMALL = {"filters": 4, "types": 2, "hidden": (8, 8)}


def fill(root: Path, seed: int, counts: dict[str, int]) -> Path:
    """Bright and dark pictures of different sizes; some are not square."""
    generator = np.random.default_rng(seed)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            low = 150 if name == "bright" else 0
            pixels = generator.integers(low, low + 60, (60 + number, 64 + 2 * (number % 5), 3), dtype="u1")
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose training images were moved from ``photos`` to ``moved``."""
    home = tmp_path_factory.mktemp("own")
    photos = fill(home / "photos", 0, {"bright": 20, "dark": 20})
    config = resolve(
        model="capsnet", data=f"images:{photos},size=52", options=SMALL, steps=20, batch_size=16, device="cpu"
    )
    assert config.options["backbone"] == "strided"
    run = new_run(config, home / "run")
    fit_run(run)
    evaluate_run(run)
    photos.rename(home / "moved")
    return home


def test_the_run_knows_where_its_images_were(trained: Path) -> None:
    config = open_run(trained / "run").config()
    assert config.data == f"images:{trained / 'photos'},size=52,grey=0"
    with pytest.raises(TorchcapsError, match=r"photos does not exist. The run in .* as its config.yaml says: if they"):
        evaluate_run(open_run(trained / "run"))


def test_what_needs_no_images_opens_none(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = predict(trained / "run", trained / "moved" / "dark")
    assert len(found.answers) == 20
    (served,) = load_run_models([trained / "run"])
    assert served.samples.images.shape == [8, 3, 52, 52]
    kept = read_samples(open_run(trained / "run"))
    assert kept is not None
    assert kept.class_names == ("bright", "dark")


def test_a_new_folder(trained: Path, tmp_path: Path) -> None:
    fresh = fill(tmp_path / "fresh", 1, {"bright": 7, "dark": 5})
    shutil.move(fresh / "bright" / "0.png", fresh / "dark" / "wrong.png")
    found = evaluate_folder(open_run(trained / "run"), fresh, tmp_path / "out")
    assert found["images"] == 12
    assert found["held_out_by_the_run"] is False
    assert sum(map(sum, found["confusion"])) == 12
    assert [row["images"] for row in found["classes"]] == [6, 6]
    assert len(found["mistakes"]) == round(12 * (1 - found["accuracy"]))
    assert json.loads((tmp_path / "out" / "images.json").read_text())["accuracy"] == found["accuracy"]
    assert (tmp_path / "out" / "images.png").is_file()
    assert (tmp_path / "out" / "mistakes.png").is_file() == bool(found["mistakes"])
    fill(tmp_path / "other", 1, {"cat": 2})
    with pytest.raises(TorchcapsError, match=r"class of .* 'cat' is unknown"):
        evaluate_folder(open_run(trained / "run"), tmp_path / "other", tmp_path / "out")


def test_the_training_folder_in_its_new_place_is_recognized(trained: Path, tmp_path: Path) -> None:
    """Only the images held out for testing may count."""
    found = evaluate_folder(open_run(trained / "run"), trained / "moved", tmp_path / "out")
    assert found["held_out_by_the_run"] is True
    assert found["images"] == 8
    result = open_run(trained / "run").result()
    assert found["accuracy"] == result["test_accuracy"]


def test_a_run_follows_its_images(trained: Path, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(trained / "run", tmp_path / "run"))
    other = fill(tmp_path / "other", 3, {"bright": 20, "dark": 19})
    with pytest.raises(TorchcapsError, match="has changed since"):
        move_images(run, other)
    move_images(run, trained / "moved")
    assert run.config().data == f"images:{trained / 'moved'},size=52,grey=0"
    assert evaluate_run(run)["test_images"] == 8
    assert relocated("images:a,size=8x9,seed=1", Path("/b")) == "images:/b,size=8x9,seed=1"


def test_images_takes_a_folder_and_test_images_a_number(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["--images", "40"], "--images names a folder of images; for a number of images, use --test-images 40"),
        (["--images", "40", "--attack", "fgsm"], "--images names a folder of images; for a number of images, use"),
        (["--images", "x", "--epsilon", "0.1"], "--epsilon and --source need --attack or --detect"),
    ):
        monkeypatch.setattr(sys, "argv", ["torchcaps", "evaluate", str(trained / "run"), *arguments])
        with pytest.raises(SystemExit):
            main()
        assert message in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(
        sys, "argv", ["torchcaps", "evaluate", str(trained / "run"), "--images", str(trained / "moved"), "--out", "o"]
    )
    with pytest.raises(SystemExit):
        main()
    said = " ".join(capsys.readouterr().out.split())
    assert "on 8 images (the test images of the folder that it was trained on), expected calibration error" in said


def test_attacks_and_detection_follow_the_images(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the message for a folder that is gone suggests works for every measurement."""
    run = shutil.copytree(trained / "run", tmp_path / "run")
    fill(tmp_path / "other", 3, {"bright": 20, "dark": 19})

    def evaluate(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["torchcaps", "evaluate", str(run), "--test-images", "4", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return stopped.value.code, " ".join(f"{said.out} {said.err}".split())

    for measurement in (["--attack", "fgsm", "--epsilon", "0.02"], ["--detect"]):
        shutil.copy(trained / "run" / "config.yaml", run / "config.yaml")
        code, said = evaluate(*measurement)
        assert code == 2
        assert "if they were moved, give their new place with --images FOLDER" in said
        code, said = evaluate(*measurement, "--images", str(tmp_path / "other"))
        assert code == 2
        assert "has changed since" in said
        code, said = evaluate(*measurement, "--images", str(trained / "moved"))
        assert code == 0, said
        assert "Written: " in said


def test_calibration_agrees_with_a_loop() -> None:
    probabilities = torch.rand(200, 4, dtype=torch.float64).mul(3).softmax(1)
    labels = torch.randint(0, 4, (200,))
    found = calibration(probabilities, labels)
    total = 0.0
    for low in range(10):
        chosen = [
            (max(row), int(np.argmax(row) == label))
            for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True)
            if low / 10 <= max(row) < (low + 1) / 10
        ]
        if chosen:
            total += abs(sum(right for _, right in chosen) - sum(confidence for confidence, _ in chosen)) / 200
    assert found["expected_calibration_error"] == pytest.approx(total)
    sure = calibration(torch.eye(3), torch.tensor([0, 1, 2]))
    assert sure["expected_calibration_error"] == 0


def test_precision_and_recall() -> None:
    rows = per_class(torch.tensor([[3, 1, 0], [2, 4, 0], [0, 0, 0]]), ("a", "b", "c"))
    assert rows[0] == {"class": "a", "images": 4, "precision": 3 / 5, "recall": 3 / 4}
    assert rows[2] == {"class": "c", "images": 0, "precision": None, "recall": None}


def test_percentiles_of_reconstruction_errors(trained: Path) -> None:
    reference = ErrorReference.of(torch.arange(1, 1001.0))
    assert reference.percentile(0.5) == 0
    assert reference.percentile(500.5) == pytest.approx(50, abs=0.5)
    assert reference.percentile(2000) == 100
    assert not reference.is_unusual(990)
    assert reference.is_unusual(992)
    kept = read_error_reference(open_run(trained / "run"))
    assert kept is not None
    assert kept.images == 3  # a tenth of 32
    noise = Image.fromarray((np.indices((60, 60, 3))[0] // 15 % 2 * 255).astype("u1"))
    noise.save(trained / "noise.png")
    (odd,) = predict(trained / "run", trained / "noise.png").answers
    assert odd.unusual is True
    assert odd.percentile == 100


def test_predict_says_if_too_few_validation_images_define_what_is_typical(
    torchcaps_command: Command, trained: Path
) -> None:
    Image.new("RGB", (60, 60), "gray").save(trained / "gray.png")
    done = torchcaps_command("predict", str(trained / "run"), str(trained / "gray.png"))
    assert done.returncode == 0, done.stderr
    assert "'typical' compares an image with only 3 validation images" in done.stdout


def test_the_sheet_has_class_and_file_on_two_lines() -> None:
    images = TensorImages(torch.rand(1, 3, 8, 8), torch.tensor([0]), ("cat", "dog"))
    mistake = {"predicted": "dog", "true": "ca$t", "probability": 0.9, "file": "cat/a\nb.png"}
    (axes,) = mistake_sheet(images, torch.tensor([0]), [mistake]).axes
    assert axes.get_xlabel() == "true: ca\\$t\ncat/a\N{REPLACEMENT CHARACTER}b.png"
