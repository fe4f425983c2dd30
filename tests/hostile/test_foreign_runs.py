"""Untrusted run directories: every invalid value raises a clear error before memory is allocated."""

from __future__ import annotations

import json
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import torchcaps
from tests.fuzz.good import CONFIG, RESULT, ROBUSTNESS, RUN_RESULT, small_model, write_run
from tests.hostile.test_sizes import claim
from torchcaps.compare.job import ComparisonResults
from torchcaps.compare.report import _table
from torchcaps.compare.table import REQUIRED_FIELDS, quick_robustness
from torchcaps.demo.served import load_run_models
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.files import read_json
from torchcaps.pretrained.hub import from_folder, save_pretrained
from torchcaps.reproduce.estimate import Estimator
from torchcaps.reproduce.report import report_paper
from torchcaps.reproduce.results import read_result
from torchcaps.reproduce.runner import Folders, run_warnings
from torchcaps.reproduce.spec import load_spec
from torchcaps.train import RunFolder, fit_run, load, new_run, open_run, read_metrics, resolve
from torchcaps.train.checkpoint import TrainingProgress, load_checkpoint, read_progress, save_checkpoint
from torchcaps.train.optimizers import make_optimizer

HEADER = "step,epoch,split,loss,accuracy,learning_rate,images_per_second,seconds\n"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("foreign") / "good")


@pytest.fixture
def run(good: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(good, tmp_path / "run")))


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


def refused(read: Callable[[], object], message: str | None = None) -> None:
    with pytest.raises(TorchcapsError, match=message) as caught:
        read()
    assert len(str(caught.value)) < 1000


def test_the_good_run_is_read(run: RunFolder) -> None:
    assert load(run.path).classes == len(CONFIG.class_names)
    assert load_run_models([run.path])[0].test_accuracy == RUN_RESULT["test_accuracy"]
    assert _compared(run).startswith("<div")
    assert evaluate_run(run)["validation_accuracy"] == 0.8


# Settings


@pytest.mark.parametrize(
    "value",
    [
        "9" * 400, "0x" + "f" * 5000, "1" + ":59" * 3000, "1" + ":59" * 400 + ".5", ".inf", "-.inf", ".nan", "1.0e+999",
        "017", "0o17", "1:30", "2001-01-01", "2001-01-01 00:00:00", "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "-9223372036854775809", "[28, 28, .inf]", "{a: 1.0e+400}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["learning_rate", "epochs", "image_shape", "options", "stop_at_accuracy"])
def test_numbers_outside_the_range_of_a_setting(run: RunFolder, key: str, value: str) -> None:
    settings = yaml.safe_load(run.config_file.read_text())
    del settings[key]
    given = f"{{hidden: {value}}}" if key == "options" else value
    run.config_file.write_text(yaml.safe_dump(settings) + f"{key}: {given}\n")
    refused(lambda: load(run.path))


@pytest.mark.parametrize(
    "change",
    [
        {"image_shape": [1, 28, 10**9]},
        {"image_shape": [1, -28, -28]},
        {"image_shape": [1, 60_000, 60_000], "model": "convnet-avg", "options": {}},  # its weights fit any size
        {"model": "ar-capsnet", "options": {"layers": 10**9}},
        {"model": "capsnet", "options": {"routing_options": {"iterations": 10**9}}},
        {"model": "matrix-capsnet", "options": {"routing_options": {"iterations": 10**9}}},
        {"model": "capsnet", "options": {"hidden": [8] * 2_000}},
        {"model": "capsnet", "options": {"filters": True}},
        {"model": "capsnet", "options": {"types": True}},  # is built, and fails at the first image
        {"model": "capsnet", "options": {"filters": "8"}},
        {"options": {"filters": [2, 0], "hidden": 8}},  # is built, and fails at the first image
    ],
)  # fmt: skip
def test_settings_that_would_never_end(run: RunFolder, change: dict[str, Any], little_memory: None) -> None:
    run.config_file.write_text(yaml.safe_dump(yaml.safe_load(run.config_file.read_text()) | change))
    refused(lambda: open_run(run.path).config().build_model())


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "capsnet", "options": {"filters": 500, "types": 500, "primary_size": 500, "class_size": 500}},
        {"model": "matrix-capsnet", "options": {"types": [128, 128, 128]}, "size": 512},
        {"model": "capsnet", "options": {"primary_size": 32, "class_size": 64}, "size": 512},
    ],
)  # fmt: skip
def test_sizes_that_are_too_large_only_together(settings: dict[str, Any], little_memory: None) -> None:
    side = settings.pop("size", 28)
    config = resolve(**settings, data="glyphs").model_copy(update={"image_shape": (1, side, side)})
    refused(config.build_model, "bytes of weights")


def test_an_image_counts_with_all_its_channels() -> None:
    """Few weights, but an image of gigabytes."""
    config = resolve(model="lenet", data="glyphs").model_copy(update={"image_shape": (1 << 24, 28, 28)})
    refused(lambda: config.model_copy(update={"options": {"filters": (1, 1), "hidden": 1}}).check_model(), "for one")


@pytest.mark.parametrize("hub", [False, True])
def test_shapes_are_compared_before_a_model_is_built(
    run: RunFolder, tmp_path: Path, little_memory: None, hub: bool
) -> None:
    large = {"model": "capsnet", "options": {"filters": 512, "types": 64, "primary_size": 64, "class_size": 64}}
    if hub:
        folder = save_pretrained(run.path, tmp_path / "hub")
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | large))
        refused(lambda: from_folder(folder), "does not fit")
    else:
        run.config_file.write_text(yaml.safe_dump(yaml.safe_load(run.config_file.read_text()) | large))
        refused(lambda: load(run.path), "does not fit")


# Weights


def _changed(path: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = load_file(path)
    name = next(name for name, value in tensors.items() if value.ndim)
    save_file({**tensors, name: change(tensors[name])}, path, {"progress": "{}"})


BAD_WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan": lambda value: torch.full_like(value, torch.nan),
    "inf": lambda value: torch.full_like(value, torch.inf),
    "int8": lambda value: value.to(torch.int8),
    "int64": lambda value: value.to(torch.int64),
    "bool": lambda value: value.bool(),
    "complex": lambda value: value.to(torch.complex64),
    "float8": lambda value: value.to(torch.float8_e4m3fn),
    "too large for float32": lambda value: value.double() + 1e300,
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_weights_that_are_not_finite(run: RunFolder, tmp_path: Path, kind: str) -> None:
    folder = save_pretrained(run.path, tmp_path / "hub")
    _changed(run.best, BAD_WEIGHTS[kind])
    _changed(folder / "model.safetensors", BAD_WEIGHTS[kind])
    refused(lambda: load(run.path), "best.safetensors")
    refused(lambda: torchcaps.from_pretrained(folder), "model.safetensors")
    last = tmp_path / "last.safetensors"
    save_checkpoint(last, *small_model(), TrainingProgress(step=3))
    _changed(last, BAD_WEIGHTS[kind])
    refused(lambda: load_checkpoint(last, *small_model()), "last.safetensors")


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_an_optimizer_state_that_is_not_finite(tmp_path: Path, kind: str) -> None:
    last = tmp_path / "last.safetensors"
    save_checkpoint(last, *small_model(), TrainingProgress(step=3))
    tensors = load_file(last)
    changed = BAD_WEIGHTS[kind](tensors["optimizer.0.exp_avg"])
    save_file({**tensors, "optimizer.0.exp_avg": changed}, last, {"progress": "{}"})
    refused(lambda: load_checkpoint(last, *small_model()), "last.safetensors")


@pytest.mark.parametrize(
    "progress",
    [
        {"step": 10**400}, {"step": -1}, {"images": 10**30}, {"seconds": -5.0}, {"loss_sum": "x"}, [], 7, None,
        {"step": True}, {"best_accuracy": 10**400}, {"best_accuracy": 2.0}, {"step": 1.5},
    ],
)  # fmt: skip
def test_impossible_counters(tmp_path: Path, progress: object) -> None:
    last = tmp_path / "last.safetensors"
    save_file({"model.weight": torch.zeros(1)}, last, {"progress": json.dumps(progress)})
    refused(lambda: read_progress(last), "counters")


def test_a_header_whose_tensors_share_bytes_is_refused(tmp_path: Path, run: RunFolder) -> None:
    content = run.best.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for entry in header.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [0, entry["data_offsets"][1] - entry["data_offsets"][0]]
    text = json.dumps(header).encode()
    run.best.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    refused(lambda: load(run.path), "damaged")


# Results and metrics


def _compared(run: RunFolder) -> str:
    """The table of a comparison that takes this run as it is."""
    result = run.result(*REQUIRED_FIELDS) | {"robustness": quick_robustness(run)}
    return _table(ComparisonResults(run.path, {"a": [run]}, {"a": [result]}))


OPEN: dict[str, Callable[[RunFolder], object]] = {
    "serve": lambda run: load_run_models([run.path]),
    "card": lambda run: save_pretrained(run.path, run.path / "hub"),
    "compare": _compared,
    "reproduce": lambda run: run_warnings({"": run}),
}


@pytest.mark.parametrize(
    "content", ["[]", "null", "7", '"x"', "true", "{", '{"test_accuracy": NaN}', '{"a": 1e999}', "9" * 400]
)
@pytest.mark.parametrize("opened", OPEN)
def test_a_result_that_is_no_mapping(run: RunFolder, opened: str, content: str) -> None:
    run.result_file.write_text(content)
    refused(lambda: OPEN[opened](run), "result.json")


WRONG = ["x", [], {}, None, True, -1, 10**18, 1e300, [[1]], {"a": 1}]


@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize(
    "key", ["test_accuracy", "test_images", "confusion", "environment", "seed", "reached", "parameters"]
)
def test_a_result_with_a_value_of_the_wrong_kind(run: RunFolder, key: str, value: object) -> None:
    allowed = {"reached": [None, True], "test_images": [10**18], "parameters": [10**18], "seed": []}
    if value in allowed.get(key, []) and type(value) in map(type, allowed.get(key, [])):
        return
    run.result_file.write_text(json.dumps(RUN_RESULT | {key: value}))
    for opened in OPEN.values():
        refused(lambda opened=opened: opened(run), "result.json")  # type: ignore[misc]


@pytest.mark.parametrize("key", ["test_images", "confusion", "environment", "parameters"])
def test_a_result_without_a_value(run: RunFolder, key: str) -> None:
    run.result_file.write_text(json.dumps({name: each for name, each in RUN_RESULT.items() if name != key}))
    refused(lambda: _compared(run), key)


@pytest.mark.parametrize(
    "content", [[], {}, {"images_per_second": 0}, {"images_per_second": -1}, {"images_per_second": "fast"}, None]
)
def test_an_estimate_leaves_out_a_result_that_has_no_speed(run: RunFolder, content: object) -> None:
    run.result_file.write_text(json.dumps(content))
    speeds = Estimator(Folders(run.path / "none", run.path.parent), may_measure=False)
    assert speeds._earlier == {}


@pytest.mark.parametrize("content", [[], None, 7, {"versions": []}, {"versions": {"torch": []}, "command": 7}, "x"])
def test_an_environment_of_the_wrong_kind(run: RunFolder, content: object) -> None:
    (run.path / "environment.json").write_text(json.dumps(content))
    refused(lambda: save_pretrained(run.path, run.path / "hub"), "environment.json")


def _robustness(*path: str | int, value: object) -> dict[str, Any]:
    changed = json.loads(json.dumps(ROBUSTNESS))
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "content",
    [
        [], {}, None, 7, "x",
        _robustness("tests", value=[]), _robustness("tests", "affnist", value=[1]), _robustness("attacked", value=[]),
        _robustness("tests", "affnist", "accuracy", value="x"), _robustness("tests", "affnist", "curves", value=7),
        _robustness("attacked", "attacks", value=[]), _robustness("attacked", "attacks", 0, "epsilon", value="x"),
        _robustness("attacked", "attacks", 0, "accuracy", value=None), _robustness("attacked", "sanity", value=7),
        _robustness("attacked", "attacks", 0, "attack", value="nosuch"),
        _robustness("attacked", "sanity", value=[{"name": []}]), _robustness("tests", "viewpoint", value={"a": 1}),
    ],
)  # fmt: skip
def test_robustness_of_the_wrong_kind(run: RunFolder, content: object) -> None:
    (run.path / "robustness.json").write_text(json.dumps(content))
    refused(lambda: _compared(run), "robustness.json")


@pytest.mark.parametrize(
    "content",
    [
        None, "", HEADER, HEADER + "50,1.0,train,0.5,0.9,0.001,99,1\n", "\0" * 50,
        HEADER + "50,1.0,validation,,nan,0.001,99,1\n", HEADER + "50,1.0,validation,,0.8,0.001,inf,1\n",
        HEADER + "50,nan,validation,,0.8,0.001,99,1\n", HEADER + "50,1.0,validation,nan,0.8,0.001,99,1\n",
        HEADER + "50,1.0,validation,,7,0.001,99,1\n", HEADER + "-50,1.0,validation,,0.8,0.001,99,1\n",
        HEADER + "9" * 400 + ",1.0,validation,,0.8,0.001,99,1\n", HEADER + "50,1.0,validation,,0.8,0.001,99,-1\n",
    ],
)  # fmt: skip
def test_metrics_without_valid_rows(run: RunFolder, content: str | None) -> None:
    run.metrics_file.unlink()
    if content is not None:
        run.metrics_file.write_text(content)
    refused(lambda: evaluate_run(run), "metrics.csv")


def test_a_line_of_metrics_that_was_cut_short_is_left_out(run: RunFolder) -> None:
    run.metrics_file.write_text(HEADER + "50,1.0,train,0.5,0.9,0.001,99,1\n100,2.0,train,0.")
    assert [line.step for line in read_metrics(run.metrics_file)] == [50]


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[1, 1e999]", '{"a": ' + "1" * 400 + "}", "-9223372036854775809"])
def test_json_numbers_that_nothing_can_hold(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    refused(lambda: read_json(path), r"a\.json")


# Results of cells


@pytest.mark.parametrize(
    "change",
    [
        {"value": 1e308}, {"value": "1"}, {"value": True}, {"seed": -1}, {"seed": 10**18}, {"seconds": -1},
        {"seconds": 1e300},         {"training_seconds": -1e300},
        {"training": []}, {"training": {}}, {"training": {"epochs": "x"}},
        {"training": {"epochs": 1, "train_images": "x"}}, {"training": {"epochs": 0}}, {"images": 10**30},
        {"warnings": [1]},
        {"training": {"epochs": 1, "train_images": -5}}, {"environment": []}, {"published": 1e200}, {"details": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_cell_of_the_wrong_kind(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RESULT | change))
    refused(lambda: read_result(path), r"a\.json")


@pytest.mark.parametrize(
    "details",
    [
        {"curve": [[0, 1e308], [1, -1e308]]}, {"curve": 7}, {"curve": [[0, "x"]]}, {"curve": {"a": 1}},
        {"by_degree": [[1]]},
        {"histogram": []}, {"histogram": {"edges": [], "counts": []}},
        {"histogram": {"edges": [1e308, 2], "counts": [1]}},
    ],
    ids=str,
)  # fmt: skip
def test_details_that_cannot_be_drawn(tmp_path: Path, details: dict[str, Any]) -> None:
    spec = load_spec("gu2021")
    table, cell = next((name, cell) for name, each in spec.tables.items() for cell in each.cells)
    folder = tmp_path / "gu2021" / table
    folder.mkdir(parents=True)
    place = {"table": table, "cell": cell, "measure": "attack-accuracy", "details": details}
    (folder / f"{cell}-laptop-seed0.json").write_text(json.dumps(RESULT | place))
    refused(lambda: report_paper(spec, tmp_path))


def test_claims_of_a_whole_file_are_refused_by_their_sum(run: RunFolder, little_memory: None) -> None:
    names = [f"model.{name}" for name in load_file(run.best)]
    claim(run.best, {name: [1 << 28] for name in names[:6]}, sparse=True)  # six gigabytes of nothing
    refused(lambda: load(run.path), "does not fit this model|damaged or truncated")


def test_counters_beyond_the_end_of_a_run_end_it(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"train_images": 40, "epochs": 1})
    started = new_run(config, tmp_path / "run")
    model = config.build_model()
    save_checkpoint(
        started.last, model, make_optimizer(model, config), TrainingProgress(step=10**9, validated_at=10**9)
    )
    assert fit_run(started).step == 10**9


def test_a_sentence_about_many_options_is_short() -> None:
    refused(CONFIG.model_copy(update={"options": {"filters": ["x" * 50] * 900}}).build_model, "cannot be built")
