from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import Request, evaluate_robustness, save_evaluation
from torchcaps.evaluate.report import notes, summary_table
from torchcaps.train import RunFolder, fit_run, new_run, resolve

QUICK = {"model": "tiny", "data": "glyphs", "train_images": 200, "steps": 12, "batch_size": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    made = [new_run(resolve(**QUICK, seed=seed, learning_rate=0.01), folder / f"tiny-{seed}") for seed in (0, 1)]
    for run in made:
        fit_run(run)
    return made


def test_all_tests_and_attacks_are_in_one_result(runs: list[RunFolder], tmp_path: Path) -> None:
    request = Request(
        on=("affnist", "multimnist"),
        attack=("fgsm", "transfer"),
        epsilons=(0.05, 0.2),
        images=30,
        source=runs[1].path,
    )
    found = [evaluate_robustness(run, request) for run in runs]
    assert [each["seed"] for each in found] == [0, 1]
    first = found[0]
    assert first["tests"]["affnist"]["images"] == 30
    assert list(first["refused"]) == ["multimnist"]
    assert [row["attack"] for row in first["attacked"]["attacks"]] == ["fgsm", "fgsm", "transfer", "transfer"]
    assert first["attacked"]["gradient_of_baseline"]["norm"] > 0
    written = save_evaluation(tmp_path / "out", found)
    assert sorted(path.name for path in written) == [
        "affine.png",
        "affine.svg",
        "attacks.png",
        "attacks.svg",
        "evaluation.json",
    ]
    assert all(path.is_file() for path in written)
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert report["runs"] == json.loads(json.dumps(found))
    assert report["environment"]["versions"]["torch"]

    titles, rows = summary_table(found)
    assert titles == ["run", "test", "accuracy", "0.05", "0.2", "sanity"]
    assert [row[:2] for row in rows] == [
        *([["tiny-0", "affine in place"], ["", "test images"], ["", "fgsm"], ["", "transfer"]]),
        *([["tiny-1", "affine in place"], ["", "test images"], ["", "fgsm"], ["", "transfer"]]),
    ]
    assert rows[2][3] == f"{100 * first['attacked']['attacks'][0]['accuracy']:.1f}"
    said = notes(found)
    assert "affine in place: 28x28 test images of glyphs changed in place" in said[0]
    assert said[-1].startswith("tiny-0, tiny-1: no multimnist: overlaid digits need")


def test_a_failed_check_is_named_in_the_table_and_below_it() -> None:
    rows = [{"attack": "fgsm", "epsilon": 0.1, "accuracy": 0.5}]
    warned = [{"name": "huge epsilon", "message": "it fails"}]
    attacked = {"attacks": rows, "clean_accuracy": 1.0, "sanity": warned, "images": 9, "logits": "scores"}
    found: dict[str, Any] = {"run": "a/b", "tests": {}, "attacked": attacked, "refused": {}}
    assert summary_table([found])[1][-1] == ["", "fgsm", "", "50.0", "huge epsilon"]
    assert notes([found])[-1] == "b: huge epsilon: it fails"
    assert [row[0] for row in summary_table([found, found | {"run": "c/b"}])[1]] == ["a/b", "", "c/b", ""]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"on": ("affnits",)}, "test 'affnits' is unknown: did you mean 'affnist'?"),
        ({"attack": ("fgms",)}, "attack 'fgms' is unknown: did you mean 'fgsm'?"),
        ({"attack": ("transfer",)}, "'transfer' needs another trained run: give it with --source"),
        ({"attack": ("square",), "norm": "l2"}, "Square supports norm linf, got .l2."),
        ({"norm": "l1"}, "norm 'l1' is unknown"),
        ({"logits": "atan"}, "logits 'atan' is unknown: did you mean 'atanh'?"),
        ({"epsilons": (8.0,)}, r"epsilon must lie in \[0, 1\], got 8.0"),
        ({"images": 0}, "at least 1 image is needed, got 0"),
        ({"source": Path("nowhere")}, "nowhere is not a directory, so it is not a run"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        Request(**wanted)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyautoattack", None)
    with pytest.raises(TorchcapsError, match=r"pip install -e '\.\[attacks\]'"):
        Request(attack=("fgsm", "autoattack"))


def test_drawings_are_told_with_what_to_hold_them_against() -> None:
    errors = {"drawing_error": 0.03, "error_of_image": 0.08, "error_of_black": 0.1}
    overlap = {"name": "multimnist", "about": "two digits", "images": 9, "accuracy": 0.5, **errors}
    found: dict[str, Any] = {"run": "b", "tests": {"multimnist": overlap}, "attacked": None, "refused": {}}
    assert summary_table([found]) == (["run", "test", "accuracy"], [["b", "multimnist", "50.0"]])
    assert notes([found])[1].endswith("squared error 0.0300 (0.0800 for the whole image, 0.1000 for black)")
