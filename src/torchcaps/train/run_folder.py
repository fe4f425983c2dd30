"""The folder of a run: everything needed to go on with it, and to use its model without the rest."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import file_name, write_json, write_text
from torchcaps.train.config import RunConfig, check, read_settings


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run's folder."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def last(self) -> Path:
        """Where the run stands: weights, optimiser and counters in one file."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights that were best on the validation images."""
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    def output(self, name: str) -> Path:
        """Return the path of a file or folder in the run to write to; refuse one that a link leads somewhere else.

        A link in place of a file is allowed, because files are replaced and never written through a link.
        """
        target = self.path / name
        folder = target.parent if target.is_file() else target
        try:
            inside = folder.resolve().is_relative_to(self.path.resolve())
        except (OSError, RuntimeError):  # links in a circle
            inside = False
        if not inside:
            raise TorchcapsError(f"{target} leads out of the run's folder: replace the link by a folder of its own")
        return target

    def check_inside(self) -> None:
        """Refuse a run, perhaps a stranger's, whose training would be written somewhere else."""
        for name in ("checkpoints", "tensorboard"):
            self.output(name)

    def config(self) -> RunConfig:
        """The settings, checked again: the file may have been changed by hand."""
        return check(read_settings(self.config_file))

    def write_config(self, config: RunConfig) -> None:
        """Write the settings, whole or not at all."""
        write_text(self.config_file, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def new_run(config: RunConfig, path: Path) -> RunFolder:
    """Make the folder of a run that is about to begin."""
    run = RunFolder(path)
    existed = path.exists()
    try:
        write_json(path / "environment.json", describe_environment())
        # The settings come last: a folder that has them is a run.
        run.write_config(config)
    except TorchcapsError:
        if not existed:
            shutil.rmtree(path, ignore_errors=True)
        raise
    return run


def open_run(path: Path) -> RunFolder:
    """The run in an existing folder, or one sentence that says why it is none."""
    run = RunFolder(path)
    if not run.config_file.is_file():
        reason = "has no config.yaml" if path.is_dir() else "is not a folder"
        raise TorchcapsError(f"{path} {reason}, so it is not a run. A run is made by 'torchcaps train'")
    return run


def fresh_path(parent: Path, config: RunConfig) -> Path:
    """A path for a new run that nobody uses yet: time, model, data."""
    name = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{config.model}-{file_name(config.data)}"
    candidates = (parent / (name if number == 1 else f"{name}-{number}") for number in range(1, 1000))
    return next(path for path in candidates if not path.exists())
