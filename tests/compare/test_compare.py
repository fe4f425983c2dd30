from __future__ import annotations

import re
from pathlib import Path

import pytest

import tests.train.tiny  # noqa: F401  (registers the model)
from torchcaps.compare import Entry, run_comparison, write_report
from torchcaps.compare.table import COLUMNS
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.train import resolve


def entries(seeds: int = 2, **more: object) -> list[Entry]:
    common = {"data": "glyphs", "train_images": 200, "test_images": 100, "epochs": 1, "batch_size": 32, "device": "cpu"}
    small = {"filters": 8, "types": 2, "hidden": [16, 16]}
    return [
        Entry(model, resolve(**common | more, model=model, seed=seed, options=options))
        for model, options in (("tiny", {}), ("capsnet", small))
        for seed in range(seeds)
    ]


def test_comparison_trains_tests_and_reports(tmp_path: Path) -> None:
    comparison = run_comparison(entries(), tmp_path)
    assert [len(results) for results in comparison.results.values()] == [2, 2]
    result = comparison.results["capsnet"][1]
    assert result["selection_split"] == "validation"
    assert result["test_images"] == 100
    assert result["seed"] == 1
    assert sum(map(sum, result["confusion"])) == 100
    assert result["environment"]["versions"]["torch"]
    assert [len(each) for each in read_json(tmp_path / "comparison.json").values()] == [2, 2]

    page = write_report(comparison).read_text()
    assert "<h2>Reconstructions by capsnet</h2>" in page
    assert "Reconstructions by tiny" not in page
    for title in ("Learning curves", "Affine change", "Accuracy under attack", "Confusions"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("prefers-color-scheme: dark)' srcset") == 6  # these four, drawings and dimensions
    assert not re.findall(r"""(?:src|href)=['"](?!data:)""", page), "the report must need nothing from elsewhere"
    for column in COLUMNS:
        assert column.show(comparison.results["tiny"]) in page


def test_a_stopped_comparison_goes_on(tmp_path: Path) -> None:
    announced: list[str] = []
    run_comparison(entries()[:1], tmp_path)
    before = (tmp_path / "tiny-seed0" / "result.json").read_bytes()
    comparison = run_comparison(entries(), tmp_path, announce=announced.append)
    assert announced == ["tiny-seed0: done before, taken as it is"]
    assert (tmp_path / "tiny-seed0" / "result.json").read_bytes() == before
    assert len(comparison.results["tiny"]) == 2


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    run_comparison(entries(seeds=1), tmp_path)
    with pytest.raises(TorchcapsError, match="holds a run with other settings"):
        run_comparison(entries(seeds=1, learning_rate=0.5), tmp_path)
