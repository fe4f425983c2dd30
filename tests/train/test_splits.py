"""Validation images are the same for all seeds; a run records a fingerprint of its dataset and reports changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.cli.main import app
from torchcaps.compare import ComparisonRun, run_comparison
from torchcaps.data.datasets import image_folder
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import Request, evaluate_robustness, evaluate_run
from torchcaps.files import read_json, write_json
from torchcaps.train import RunFolder, fit_run, new_run, resolve
from torchcaps.train.splits import training_splits

SETTINGS = {"model": "tiny", "epochs": 1, "batch_size": 8, "device": "cpu", "augmentation": ""}


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (28, 28), dtype="u1")).save(path)


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for label, name in enumerate(("cat", "dog")):
        for number in range(10):
            draw(tmp_path / "photos" / name / f"{number}.png", 10 * label + number)
    rows = [f"photos/{name}/{number}.png,{name}" for name in ("cat", "dog") for number in range(10)]
    (tmp_path / "photos.csv").write_text("\n".join(["path,label", *rows]), encoding="utf-8")
    forget()
    return tmp_path / "photos"


def forget() -> None:
    """Clear caches, as in a new process."""
    image_folder.read_once.cache_clear()
    image_folder.fit_folder.cache_clear()


def trained(data: str = "images:photos", **more: object) -> RunFolder:
    run = new_run(resolve(**SETTINGS | {"data": data} | more), Path("run"))
    fit_run(run)
    return run


def rename_class() -> None:
    Path("photos/cat").rename("photos/feline")


def rename_class_to_the_end() -> None:
    Path("photos/cat").rename("photos/zebra")


def add_class() -> None:
    for number in range(10):
        draw(Path(f"photos/fox/{number}.png"), 100 + number)


def remove_class() -> None:
    add_class()
    shutil.rmtree("photos/dog")


def add_files() -> None:
    for number in range(12):
        draw(Path(f"photos/cat/more-{number}.png"), 200 + number)


def remove_files() -> None:
    Path("photos/dog/3.png").unlink()


def rename_files() -> None:
    Path("photos/dog/3.png").rename("photos/dog/a.png")


def relabel() -> None:
    """As many pictures of each class as before."""
    text = Path("photos.csv").read_text(encoding="utf-8")
    text = text.replace("cat/1.png,cat", "cat/1.png,dog").replace("dog/1.png,dog", "dog/1.png,cat")
    Path("photos.csv").write_text(text, encoding="utf-8")


CHANGES: list[tuple[Callable[[], None], str, str]] = [
    (rename_class, "images:photos", "class 'cat' was renamed to 'feline'"),
    (rename_class_to_the_end, "images:photos", "class 'cat' was renamed to 'zebra'"),
    (add_class, "images:photos", "class 'fox' was added"),
    (remove_class, "images:photos", "class 'dog' was removed and class 'fox' was added"),
    (add_files, "images:photos", "12 pictures were added"),
    (remove_files, "images:photos", "1 picture was removed"),
    (rename_files, "images:photos", "files were renamed"),
    (relabel, "images:photos.csv", "labels were changed"),
]


@pytest.mark.parametrize(("change", "data", "sentence"), CHANGES, ids=lambda each: getattr(each, "__name__", None))
def test_changed_pictures_are_refused(change: Callable[[], None], data: str, sentence: str) -> None:
    run = trained(data)
    result = run.result_file
    change()
    forget()
    for use in (
        fit_run,
        evaluate_run,
        lambda run: evaluate_robustness(run, Request(attack=("fgsm",))),
        lambda run: run_comparison([ComparisonRun("tiny", resolve(**SETTINGS | {"data": data}))], Path("compared")),
    ):
        Path("compared").mkdir(exist_ok=True)
        shutil.copytree("run", "compared/tiny-seed0", dirs_exist_ok=True)
        with pytest.raises(TorchcapsError) as caught:
            use(run)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not result.exists()
    said = CliRunner().invoke(app, ["explain", "run"])
    assert sentence in str(said.exception)


def test_changed_pixels_are_reported(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning, not an error: another version of a decoder gives other pixels too."""
    run = trained()
    draw(photos / "cat" / "3.png", 99)
    forget()
    evaluate_run(run)
    assert "the pixels of its images have changed" in caplog.text


def test_the_same_pictures_are_taken_without_a_word(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trained()
    (photos / "notes.txt").write_text("no picture", encoding="utf-8")
    for path in photos.rglob("*.png"):
        path.touch()
    forget()
    fit_run(run)
    evaluate_run(run)
    assert not caplog.records


def test_a_run_without_a_fingerprint_still_knows_its_classes(caplog: pytest.LogCaptureFixture) -> None:
    run = trained()
    run.dataset_file.unlink()
    evaluate_run(run)
    assert not caplog.records
    add_class()
    forget()
    with pytest.raises(TorchcapsError, match="class 'fox' was added"):
        evaluate_run(run)


@pytest.mark.parametrize("content", [[], {"classes": 3}, {"classes": ["cat", "dog"], "images": "many", "digests": {}}])
def test_a_damaged_fingerprint_is_refused(content: object) -> None:
    run = trained()
    write_json(run.dataset_file, content)
    with pytest.raises(TorchcapsError, match=r"dataset\.json"):
        evaluate_run(run)


def test_known_datasets_have_a_fingerprint_too(tmp_path: Path) -> None:
    run = new_run(resolve(model="tiny", data="glyphs"), tmp_path / "glyphs")
    found = read_json(run.dataset_file)
    assert found["classes"] == list("0123456789")
    assert found["images"] == {"train": 6000, "test": 1000}


def test_runs_of_all_seeds_are_validated_on_the_same_images() -> None:
    validation = [training_splits(resolve(model="capsnet", data="glyphs", seed=seed))[1] for seed in (0, 1)]
    first, second = (images.batch(torch.arange(len(images))).images for images in validation)
    assert torch.equal(first, second)
