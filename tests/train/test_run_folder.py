"""The directory of a run that was killed before its first step is reused; any other directory is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.compare import ComparisonRun, run_comparison
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_json, write_text
from torchcaps.train import new_run, resolve

CONFIG = resolve(model="tiny", data="glyphs", train_images=100, test_images=50, steps=1, device="cpu")


def leave_beginning(path: Path, files: list[str]) -> None:
    """The files that a process leaves if it is killed after writing this many."""
    new_run(CONFIG, path)
    for file in list(path.iterdir()):
        if file.name not in files:
            file.unlink()
    (path / ".config.yaml.0123abcd.tmp").write_text("mod", encoding="utf-8")


@pytest.mark.parametrize("files", [[], ["environment.json"], ["environment.json", "dataset.json"]], ids=len)
def test_a_beginning_is_taken_over(tmp_path: Path, files: list[str]) -> None:
    leave_beginning(tmp_path / "run", files)
    assert new_run(CONFIG, tmp_path / "run").config() == CONFIG
    leave_beginning(tmp_path / "compared" / "tiny-seed0", files)
    comparison = run_comparison([ComparisonRun("tiny", CONFIG)], tmp_path / "compared", robustness=False)
    assert comparison.results["tiny"][0]["test_images"] == 50


@pytest.mark.parametrize("name", ["notes.txt", "environment.json", ".config.yaml.tmp", "checkpoints/last.safetensors"])
def test_files_of_somebody_else_are_left_alone(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / "compared" / "tiny-seed0" / name, '{"mine": 1}')
    with pytest.raises(TorchcapsError, match=r"is not empty: choose another directory$"):
        new_run(CONFIG, tmp_path / "compared" / "tiny-seed0")
    with pytest.raises(TorchcapsError, match=r"has no config\.yaml"):
        run_comparison([ComparisonRun("tiny", CONFIG)], tmp_path / "compared", robustness=False)
    assert (tmp_path / "compared" / "tiny-seed0" / name).read_text(encoding="utf-8") == '{"mine": 1}'


def test_a_run_that_has_begun_is_to_be_resumed(tmp_path: Path) -> None:
    run = new_run(CONFIG, tmp_path / "run")
    write_json(run.path / "result.json", {})
    with pytest.raises(TorchcapsError, match=r"is not empty.*--resume"):
        new_run(CONFIG, run.path)


def test_two_comparisons_in_one_folder(tmp_path: Path) -> None:
    """The second comparison raises a clear error while the first runs."""
    said: list[str] = []

    def compare_again(text: str) -> None:
        with pytest.raises(TorchcapsError, match="another comparison") as caught:
            run_comparison([ComparisonRun("tiny", CONFIG)], tmp_path, robustness=False)
        said.append(str(caught.value))

    for _ in range(2):
        run_comparison([ComparisonRun("tiny", CONFIG)], tmp_path, robustness=False, announce=compare_again)
    assert len(said) == 1
