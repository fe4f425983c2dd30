from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.cli.main import app
from torchcaps.compare import ComparisonResults, ComparisonRun, run_comparison, write_report
from torchcaps.compare.figures import plot_learning_curves
from torchcaps.compare.report import name_cell
from torchcaps.compare.table import COLUMNS, SUSPECT_MARK, robustness_columns, table_cells
from torchcaps.data import TensorImages, datasets, load_dataset
from torchcaps.data.datasets.viewpoints import split_by_viewpoint
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.train import RunConfig, new_run, resolve
from torchcaps.train.metrics import HEADER


def entries(seeds: int = 2, **more: object) -> list[ComparisonRun]:
    common = {"data": "glyphs", "train_images": 200, "test_images": 100, "epochs": 1, "batch_size": 32, "device": "cpu"}
    small = {"filters": 8, "types": 2, "hidden": [16, 16]}
    return [
        ComparisonRun(model, resolve(**common | more, model=model, seed=seed, options=options))
        for model, options in (("tiny", {}), ("capsnet", small))
        for seed in range(seeds)
    ]


SIDES = {"train": 2000, "familiar": 334, "test": 666}


def open_sides(split: str) -> TensorImages:
    def seen_from(part: str) -> TensorImages:
        whole = load_dataset("glyphs", part)
        assert isinstance(whole, TensorImages)
        azimuths = torch.arange(len(whole)) % 3 * 40
        return TensorImages(whole.images, whole.labels, whole.class_names, {"azimuth": azimuths})

    return split_by_viewpoint(seen_from, "azimuth")(split)


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
    for title in ("Learning curves", "Affine changes", "Accuracy under attack", "Confusion matrices"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("prefers-color-scheme: dark)' srcset") == 6  # these four, drawings and dimensions
    assert not re.findall(r"""(?:src|href)=['"](?!data:)""", page), "the report must need nothing from elsewhere"
    chosen = [*COLUMNS, *robustness_columns(list(comparison.results.values()))]
    assert [column.title for column in chosen][-3:] == ["affine, %", "fgsm 0.1, %", "bim 0.1, %"]
    for cell in table_cells(chosen, comparison.results["tiny"]):
        assert f"<td>{cell}</td>" in page
    kept = read_json(tmp_path / "tiny-seed1" / "robustness.json")
    assert kept == result_of(comparison, "tiny", 1)["robustness"]
    assert len(kept["attacked"]["attacks"]) == 6
    assert kept["environment"]["versions"]["torch"]


def result_of(comparison: ComparisonResults, label: str, seed: int) -> dict[str, Any]:
    return comparison.results[label][seed]


def test_a_failed_sanity_check_is_shown_with_its_value(tmp_path: Path) -> None:
    comparison = run_comparison(entries(seeds=1)[:1], tmp_path)
    plain = write_report(comparison).read_text()
    assert "class='warning'" not in plain
    assert SUSPECT_MARK not in plain
    warned = {"name": "masked gradient", "message": "nothing is seen"}
    result_of(comparison, "tiny", 0)["robustness"]["attacked"]["sanity"] = [warned]
    page = write_report(comparison).read_text()
    assert "tiny: masked gradient, nothing is seen." in page
    assert page.count(SUSPECT_MARK) == 2  # one for each attack of the one model


def test_models_that_miss_the_target_are_not_compared(tmp_path: Path) -> None:
    low, high = (entries(seeds=1, epochs=30, learning_rate=0.003, stop_at_accuracy=level) for level in (0.3, 1.0))
    comparison = run_comparison(
        [low[0], ComparisonRun("capsnet", high[1].config.model_copy(update={"epochs": 1}))], tmp_path
    )
    tiny, capsnet = result_of(comparison, "tiny", 0), result_of(comparison, "capsnet", 0)
    assert tiny["reached"]
    assert tiny["validation_accuracy"] >= 0.3
    assert capsnet["reached"] is False
    assert "robustness" not in capsnet
    page = write_report(comparison).read_text()
    assert "Training was stopped at an accuracy of 100.00% and 30.00% on the validation images." in page
    assert "Not compared, because they never reached it: capsnet." in page
    chosen = [*COLUMNS, *robustness_columns(list(comparison.results.values()))]
    assert table_cells(chosen, [capsnet])[-4:] == ["not matched"] * 4
    assert "not matched" not in table_cells(chosen, [tiny])


def test_models_are_matched_on_familiar_viewpoints(tmp_path: Path) -> None:
    """hinton2018's protocol, on glyphs with made-up azimuths."""
    if "glyphs-azimuth" not in datasets:
        datasets.add(replace(datasets.get("glyphs"), name="glyphs-azimuth", splits=SIDES, open=open_sides))
    more = {"data": "glyphs-azimuth", "epochs": 20, "learning_rate": 0.003}
    first, other = entries(seeds=1, **more)[0], entries(seeds=1, **more)[0]
    first = ComparisonRun("first", first.config.model_copy(update={"epochs": 2}))
    comparison = run_comparison([first, ComparisonRun("other", other.config)], tmp_path, match_first=True)
    baseline, matched = result_of(comparison, "first", 0), result_of(comparison, "other", 0)
    sides = baseline["robustness"]["tests"]["viewpoint"]
    assert matched["selection_split"] == "familiar"
    assert matched["stop_at_accuracy"] == pytest.approx(1 - sides["familiar_error"])
    assert matched["reached"]
    seen = matched["robustness"]["tests"]["viewpoint"]
    assert seen["familiar_error"] == pytest.approx(1 - matched["validation_accuracy"])
    assert seen["familiar_error"] <= sides["familiar_error"]
    assert seen["novel_error"] == pytest.approx(1 - matched["test_accuracy"], abs=0.2)
    assert "familiar views, %" in [column.title for column in robustness_columns(list(comparison.results.values()))]
    again = run_comparison([first, ComparisonRun("other", other.config)], tmp_path, match_first=True)
    assert again.results == comparison.results


def test_a_stopped_comparison_is_resumed(tmp_path: Path) -> None:
    announced: list[str] = []
    run_comparison(entries()[:1], tmp_path, robustness=False)
    before = (tmp_path / "tiny-seed0" / "result.json").read_bytes()
    comparison = run_comparison(entries(), tmp_path, robustness=False, announce=announced.append)
    assert announced == ["tiny-seed0: already finished, kept"]
    assert (tmp_path / "tiny-seed0" / "result.json").read_bytes() == before
    assert len(comparison.results["tiny"]) == 2


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    run_comparison(entries(seeds=1), tmp_path, robustness=False)
    with pytest.raises(TorchcapsError, match="holds a run with other settings"):
        run_comparison(entries(seeds=1, learning_rate=0.5), tmp_path)


def test_a_model_is_built_once_for_its_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check before the first run must not allocate the weights that the training allocates again."""
    built = []
    build = RunConfig.build_model

    def counted(config: RunConfig, weights: Path | None = None, **more: Any) -> Any:
        if weights is None:
            built.append(config.model)
        return build(config, weights, **more)

    monkeypatch.setattr(RunConfig, "build_model", counted)
    options = ["--data", "glyphs", "--train-images", "60", "--test-images", "20", "--epochs", "1", "--no-robustness"]
    done = CliRunner().invoke(app, ["compare", "tiny", "lenet", *options, "--out", str(tmp_path / "both")])
    assert done.exit_code == 0, done.output
    assert built == ["tiny", "lenet"]


def test_a_long_name_is_wrapped_between_its_settings() -> None:
    cell = name_cell("capsnet:routing=mine,filters=<8", best=True)
    assert cell == "<td class='best'>capsnet:<wbr>routing=mine,<wbr>filters=&lt;8</td>"


def test_learning_curves_with_a_single_point_are_visible(tmp_path: Path) -> None:
    """A line through one point draws nothing: it needs a marker."""
    run = new_run(entries(1)[0].config, tmp_path / "run")
    rows = [f"5,1.0,{split},0.5,0.7,0.001,100,2" for split in ("train", "validation")]
    run.metrics_file.write_text("\n".join([",".join(HEADER), *rows, ""]))
    figure = plot_learning_curves(ComparisonResults(tmp_path, {"tiny": [run]}, {}))
    lines = [line for axes in figure.axes for line in axes.lines]
    assert [len(line.get_xdata()) for line in lines] == [1, 1]
    assert all(line.get_marker() == "o" for line in lines)
