"""Train several models with several seeds under the same budget, and test each the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.files import read_json, write_json
from torchcaps.train import RunConfig, RunFolder, fit, new_run, open_run


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison with their results, grouped by model in the order asked for."""

    path: Path
    runs: dict[str, list[RunFolder]]
    results: dict[str, list[dict[str, Any]]]


def run_comparison(
    configs: list[RunConfig], path: Path, *, announce: Callable[[str], None] = lambda text: None
) -> Comparison:
    """Train and test every configuration in a folder of its own under ``path``.

    A comparison that was stopped goes on where it stood: finished runs are taken as they are, a started one is
    resumed. A folder that holds a run with other settings is refused rather than mixed in.
    """
    runs = [_open_or_make(config, path / f"{config.model}-seed{config.seed}") for config in configs]
    comparison = Comparison(path, {}, {})
    for config, run in zip(configs, runs, strict=True):
        if run.result_file.is_file():
            announce(f"{run.path.name}: done before, taken as it is")
            result = read_json(run.result_file)
        else:
            fit(run)
            result = evaluate_run(run)
        comparison.runs.setdefault(config.model, []).append(run)
        comparison.results.setdefault(config.model, []).append(result)
    write_json(path / "comparison.json", [result for group in comparison.results.values() for result in group])
    return comparison


def _open_or_make(config: RunConfig, path: Path) -> RunFolder:
    if not path.exists():
        return new_run(config, path)
    run = open_run(path)
    if run.config() != config:
        raise TorchcapsError(f"{path} holds a run with other settings: choose another --out, or remove it")
    return run
