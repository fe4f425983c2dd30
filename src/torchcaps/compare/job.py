"""Train several models with several seeds under the same budget, and evaluate each in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.compare.table import REQUIRED_FIELDS, quick_robustness
from torchcaps.data.datasets.image_folder import own_folder
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.evaluate.clean import reached_target, stop_like_baseline
from torchcaps.files import file_lock, file_name, write_json
from torchcaps.train import RunConfig, RunFolder, fit_run, is_free, move_images, new_run, open_run


@dataclass(frozen=True)
class ComparisonRun:
    """One run of a comparison. Runs with the same label differ only in their seed."""

    label: str
    config: RunConfig


@dataclass(frozen=True)
class ComparisonResults:
    """Run folders and results of a comparison, by label in the requested order."""

    path: Path
    runs: dict[str, list[RunFolder]]
    results: dict[str, list[dict[str, Any]]]


def run_comparison(
    entries: list[ComparisonRun],
    path: Path,
    *,
    robustness: bool = True,
    match_first: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> ComparisonResults:
    """Train and evaluate every entry in its own run directory under ``path``.

    An interrupted comparison is resumed: finished runs are kept, and an unfinished one continues. A directory that
    holds a run with other settings raises an error.

    Args:
        entries: the runs.
        path: folder of the comparison.
        robustness: also run the quick robustness tests on each model.
        match_first: train the first model to the end, and stop each other model when its accuracy on familiar
            viewpoints equals that of the first model with the same seed (hinton2018, Table 2).
        announce: called with a message for each run that is kept.
    """
    with file_lock(path / ".lock", f"another comparison is running in {path}"):
        return _compare(entries, path, robustness, match_first, announce)


def _compare(
    entries: list[ComparisonRun], path: Path, robustness: bool, match_first: bool, announce: Callable[[str], None]
) -> ComparisonResults:
    baselines = [entry for entry in entries if entry.label == entries[0].label]
    runs = [_open_or_make(entry, path) for entry in (baselines if match_first else entries)]
    comparison = ComparisonResults(path, {}, {})
    for number, entry in enumerate(entries):
        if number == len(runs):
            baseline = next(run for run in runs if run.config().seed == entry.config.seed)
            runs.append(_open_or_make(ComparisonRun(entry.label, stop_like_baseline(entry.config, baseline)), path))
        run = runs[number]
        if run.result_file.is_file():
            announce(f"{run.path.name}: already finished, kept")
            result = run.result(*REQUIRED_FIELDS)
        else:
            fit_run(run)
            result = evaluate_run(run)
        if robustness and reached_target([result]):
            result["robustness"] = quick_robustness(run)
        comparison.runs.setdefault(entry.label, []).append(run)
        comparison.results.setdefault(entry.label, []).append(result)
    write_json(path / "comparison.json", comparison.results)
    return comparison


def _open_or_make(entry: ComparisonRun, parent: Path) -> RunFolder:
    path = parent / f"{file_name(entry.label)}-seed{entry.config.seed}"
    if is_free(path):
        return new_run(entry.config, path)
    run = open_run(path)
    if (folder := own_folder(entry.config.data)) and own_folder(run.config().data) != folder:
        run = move_images(run, folder)
    run.check_dataset()
    if run.config() != entry.config:
        raise TorchcapsError(f"{path} holds a run with other settings: choose another --out, or remove the directory")
    return run
