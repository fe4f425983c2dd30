"""The run directory: everything needed to resume a run, and to use its model without the rest."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from torch import distributed

from torchcaps.data.datasets.image_folder import own_folder, relocated
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import file_lock, file_name, read_json, write_json, write_text
from torchcaps.kernels.autotune import FORMS
from torchcaps.models import Model
from torchcaps.plugins import describe_plugins, missing_plugins
from torchcaps.train.checkpoint import load_weights
from torchcaps.train.config import RunConfig, read_settings, validate_config
from torchcaps.train.device import make_fabric
from torchcaps.train.distributed import DistributedContext, find_world
from torchcaps.train.records import EnvironmentRecord, RunResult, read_record
from torchcaps.train.splits import Fingerprint, dataset_changes, dataset_fingerprint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """A run directory: the paths in it, and what they hold."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def dataset_file(self) -> Path:
        return self.path / "dataset.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def last(self) -> Path:
        """The last checkpoint: weights, optimizer state and counters in one file."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights with the best validation accuracy; those of a shipped network are in ``weights.safetensors``."""
        shipped = self.path / "weights.safetensors"
        return shipped if shipped.is_file() else self.path / "checkpoints" / "best.safetensors"

    @property
    def initial(self) -> Path:
        """The weights that a run starts with, if it continues from another network."""
        return self.path / "checkpoints" / "initial.safetensors"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    def output(self, name: str) -> Path:
        """Return the path of a file or directory to write to; raise an error if a link leads out of the run directory.

        A link in place of a file is allowed, because files are replaced and never written through a link.
        """
        target = self.path / name
        folder = target.parent if target.is_file() else target
        try:
            inside = folder.resolve().is_relative_to(self.path.resolve())
        except (OSError, RuntimeError):  # links in a circle
            inside = False
        if not inside:
            raise TorchcapsError(f"{target} leads out of the run directory: replace the link with a directory")
        return target

    def check_inside(self) -> None:
        """Raise an error if training would write outside the run directory, which may be untrusted."""
        for name in ("checkpoints", "tensorboard"):
            self.output(name)

    def config(self) -> RunConfig:
        """Read the config and validate it: the file may have been edited."""
        return validate_config(read_settings(self.config_file))

    def result(self, *needed: str) -> dict[str, Any]:
        """Read the result file and validate it; the ``needed`` fields must be there."""
        values = read_record(RunResult, self.result_file)
        missing = [name for name in needed if name not in values]
        if missing:
            raise TorchcapsError(f"{self.result_file} has no {missing[0]}: run 'torchcaps evaluate {self.path}' again")
        classes = len(self.config().class_names)
        if "confusion" in values and len(values["confusion"]) != classes:
            raise TorchcapsError(
                f"{self.result_file} has a confusion matrix of {len(values['confusion'])} classes, and the run has "
                f"{classes}: run 'torchcaps evaluate {self.path}' again"
            )
        return values

    def environment(self) -> dict[str, Any]:
        """Read the environment that the run was trained in; empty if it was not recorded."""
        return read_record(EnvironmentRecord, self.environment_file) if self.environment_file.is_file() else {}

    def write_config(self, config: RunConfig) -> None:
        """Write the config atomically."""
        write_text(self.config_file, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))

    def locked(self) -> AbstractContextManager[None]:
        """Return a lock that keeps other processes from training the run or changing its config."""
        return file_lock(self.path / ".lock", f"{self.path} is being trained by another process")

    def check_dataset(self, now: Fingerprint | None = None) -> None:
        """Raise an error if the dataset has changed since the run was created.

        Changed pixels in the same files are only a warning, because another version of an image decoder changes them
        too. A run of an earlier version has no fingerprint, but its config has the classes.

        Args:
            now: the fingerprint of the images as they are; None: that of the dataset in the config.
        """
        config = self.config()
        if now is None:
            config.check_registered()
            self._check_folder(config)
        before = Fingerprint(config.class_names)
        if self.dataset_file.exists():
            try:
                before = TypeAdapter(Fingerprint).validate_python(read_json(self.dataset_file))
            except ValidationError as error:
                raise TorchcapsError(
                    f"{self.dataset_file} was not written by torchcaps: restore it, or remove it to continue without it"
                ) from error
        now = now or dataset_fingerprint(config.data)
        if changes := dataset_changes(before, now):
            raise TorchcapsError(
                f"{config.data} has changed since the run in {self.path} was created: {changes}. Restore it, or "
                "train a new run"
            )
        if before.digests.get("pictures", "") != now.digests.get("pictures", "") and before.digests:
            log.warning(
                "%s: the pixels of its images have changed. Files were edited, or the version of Pillow has changed",
                self.path,
            )

    def _check_folder(self, config: RunConfig) -> None:
        """Raise an error if the user's own images are no longer where they were when the run was created."""
        folder = own_folder(config.data)
        if folder is not None and not folder.exists():
            raise TorchcapsError(
                f"{folder} does not exist. The run in {self.path} was trained on the images there, as its config.yaml "
                "says: if they were moved, give their new place with --images FOLDER"
            )

    def plugins(self) -> Any:
        """Return the record of the plugins that the run was created with; None if there are none."""
        try:
            return read_json(self.environment_file).get("plugins")
        except (TorchcapsError, AttributeError):
            return None

    def training_record(self) -> dict[str, Any]:
        """Read what ``write_training_record`` wrote; empty if it cannot be read."""
        try:
            found = read_json(self.environment_file)["training"]
        except (TorchcapsError, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    def convolution_forms(self) -> dict[str, str]:
        """Return the recorded form of each convolution, see ``torchcaps.kernels.autotune``."""
        found = self.training_record().get("convolutions")
        pairs = found.items() if isinstance(found, dict) else ()
        return {name: form for name, form in pairs if form in FORMS}

    def write_training_record(self, record: dict[str, Any]) -> None:
        """Record in environment.json what the last bits of the weights depend on: threads, processor, kernels."""
        try:
            environment = read_json(self.environment_file)
        except TorchcapsError:
            environment = {}
        kept = environment if isinstance(environment, dict) else {}
        write_json(self.environment_file, kept | {"training": record})


def new_run(config: RunConfig, path: Path, fingerprint: Fingerprint | None = None) -> RunFolder:
    """Create a run directory; there must be nothing at ``path``, or an empty directory.

    Of several processes started by torchrun or Slurm, the main one creates it. ``fingerprint`` describes images that
    were given from Python; None: those of the dataset in the config.
    """
    fingerprint = fingerprint or dataset_fingerprint(config.data)
    if not find_world(config).started:
        return _write_run(config, path, fingerprint)
    context = DistributedContext(make_fabric(config))
    with context.watched(path):
        path = Path(context.fabric.broadcast(str(path)))  # which contains the time, so the processes may differ
        if context.is_main:
            _write_run(config, path, fingerprint)
        context.barrier()
    return RunFolder(path)


def _write_run(config: RunConfig, path: Path, fingerprint: Fingerprint) -> RunFolder:
    run, existed = RunFolder(path), path.exists()
    if not is_free(path):
        resume = f", or resume the run with --resume {path}" if run.config_file.is_file() else ""
        raise TorchcapsError(f"{path} is not empty: choose another directory{resume}")
    try:
        plugins = describe_plugins()
        write_json(run.environment_file, describe_environment() | ({"plugins": plugins} if plugins else {}))
        write_json(run.dataset_file, asdict(fingerprint))
        # The config comes last: a directory that has one is a run.
        run.write_config(config)
    except TorchcapsError:
        if not existed:
            shutil.rmtree(path, ignore_errors=True)
        raise
    return run


def open_run(path: Path) -> RunFolder:
    """Open an existing run directory; the error says in one sentence why it is none."""
    run = RunFolder(path)
    if not run.config_file.is_file():
        reason = "has no config.yaml" if path.is_dir() else "is not a directory"
        raise TorchcapsError(f"{path} {reason}, so it is not a run directory. 'torchcaps train' creates one")
    for sentence in missing_plugins(run.plugins()):
        log.warning("%s: %s", path, sentence)
    return run


def is_free(path: Path) -> bool:
    """Whether ``new_run`` can use a path: nothing is there, or only what it left when it was killed."""
    if not path.is_dir():
        return not path.exists() and not path.is_symlink()
    return all(_is_leftover(each) for each in path.iterdir())


def _is_leftover(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    if re.fullmatch(r"\.(environment\.json|dataset\.json|config\.yaml)\.[0-9a-f]{8}\.tmp", file.name):
        return True
    keys = {"environment.json": {"command", "versions"}, "dataset.json": {"classes", "digests"}}.get(file.name)
    try:
        return keys is not None and keys <= read_json(file).keys()
    except (TorchcapsError, AttributeError):
        return False


def new_run_path(parent: Path, config: RunConfig) -> Path:
    """Return an unused path for a new run, named by time, model and dataset."""
    name = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{config.model}-{file_name(config.data)}"
    candidates = (parent / (name if number == 1 else f"{name}-{number}") for number in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def move_images(run: RunFolder, folder: Path) -> RunFolder:
    """Let a run use its images in another place, after checking that they are the same images."""
    config = run.config()
    if own_folder(config.data) is None:
        raise TorchcapsError(f"the run in {run.path} was trained on {config.data}, not on a folder of images")
    data = relocated(config.data, folder)
    run.check_dataset(dataset_fingerprint(data))
    return change_settings(run, data=data)


def check_extension(run: RunFolder, *, epochs: int | None = None, steps: int | None = None) -> None:
    """Raise an error if a run cannot be trained for longer, or would be shortened.

    A one-cycle schedule and the spread loss depend on the length of the whole training: a longer run would have been
    trained otherwise from the start.
    """
    config = run.config()
    shorter = (epochs or config.epochs) < config.epochs or (steps is not None and steps < (config.steps or 0))
    if shorter:
        raise TorchcapsError(f"the run in {run.path} has {config.epochs} epochs: it can be extended, not shortened")
    fixed = [
        name
        for name, used in (
            (f"schedule '{config.schedule}'", config.schedule.startswith("one-cycle")),
            (f"loss '{config.loss}'", config.loss == "spread"),
        )
        if used
    ]
    if fixed:
        raise TorchcapsError(
            f"the {fixed[0]} of the run in {run.path} depends on the length of the training, so the run cannot be "
            f"extended: train a new run, or start one from it with --from {run.path}"
        )


def change_settings(run: RunFolder, **changes: object) -> RunFolder:
    """Change settings of a run that is to be resumed, such as the device or the number of processes."""
    if not changes:
        return run
    config = run.config()
    # Processes that torchrun or Slurm started all come here at once.
    with contextlib.nullcontext() if find_world(config).started else run.locked():
        run.write_config(validate_config(config.model_dump() | changes))
    return run


def is_main_process() -> bool:
    """Whether this is the main process of those that train together."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def load(run: str | Path) -> Model:
    """Load the model of a run directory in evaluation mode, with the weights of the best validation accuracy.

    It takes pixels in [0, 1]: any other preprocessing is part of the model. ``model.class_names`` are the names of
    the classes, in the order of the scores.
    """
    opened = open_run(Path(run))
    return load_model(opened.config(), opened.best)


def load_model(config: RunConfig, weights: Path, *, prefix: str = "model.") -> Model:
    """Build the model of a config and load the weights of a file, in evaluation mode."""
    model = config.build_model(weights, prefix=prefix)
    load_weights(weights, model, prefix=prefix)
    model.class_names = config.class_names
    return model.eval()
