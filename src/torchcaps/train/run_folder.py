"""The folder of a run: everything needed to go on with it, and to use its model without the rest."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from torch import distributed

from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import file_lock, file_name, read_json, write_json, write_text
from torchcaps.kernels.autotune import FORMS
from torchcaps.models import Model
from torchcaps.train.checkpoint import load_weights
from torchcaps.train.config import RunConfig, check, read_settings
from torchcaps.train.device import make_fabric
from torchcaps.train.distributed import DistributedContext, find_world
from torchcaps.train.splits import Fingerprint, dataset_changes, dataset_fingerprint

# MERGED The start of a run, and of a run that goes on elsewhere, also where several processes start at
# MERGED From a run's folder to a model ready for use.
log = logging.getLogger(__name__)

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, le=1e12)]


class Recorded(BaseModel):
    """A JSON file of a run directory, or a part of one. What is known has a type; anything else is left alone."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class Environment(Recorded):
    """What ``describe_environment`` writes, as far as it is read again."""

    command: str
    commit: str | None
    versions: dict[str, str | None]
    processor: str
    cores: Count | None
    threads: Count


class RunResult(Recorded):
    """What ``evaluate_run`` writes. A value may be missing, because earlier versions wrote fewer."""

    model: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    parameters: Count = 0
    selection_split: str = ""
    validation_accuracy: Share = 0
    stop_at_accuracy: Share | None = None
    reached: bool | None = None
    test_accuracy: Share = 0
    test_images: Count = 0
    training_seconds: Amount = 0
    images_per_second: Annotated[float, Field(gt=0, le=1e12)] = 1
    confusion: list[list[Count]] | None = Field(default=None, min_length=2)
    environment: Environment | None = None

    @model_validator(mode="after")
    def check_confusion(self) -> Self:
        given = self.model_fields_set
        if any(name in given and getattr(self, name) is None for name in ("confusion", "environment")):
            raise ValueError("confusion and environment must not be null")
        if any(len(row) != len(self.confusion or []) for row in self.confusion or []):
            raise ValueError("the confusion matrix must be square")
        return self


R = TypeVar("R", bound=Recorded)


def read_recorded(kind: type[R], path: Path) -> dict[str, Any]:
    """The values of a JSON file that somebody else may have written, or one sentence that says what is wrong."""
    values = read_json(path)
    try:
        kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "the file"
        raise TorchcapsError(
            f"{path} cannot be used: {where}: {first['msg'][:200]}. Remove it to do without"
        ) from error
    return values  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run's folder."""

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

    def result(self, *needed: str) -> dict[str, Any]:
        """The values of the result file, checked: these are there, and all that are there have the right type."""
        values = read_recorded(RunResult, self.result_file)
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
        """What the run was made with; nothing if that was not recorded."""
        path = self.path / "environment.json"
        return read_recorded(Environment, path) if path.is_file() else {}

    def write_config(self, config: RunConfig) -> None:
        """Write the settings, whole or not at all."""
        write_text(self.config_file, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))

    def locked(self) -> AbstractContextManager[None]:
        """Let nobody else train the run or change its settings while a block runs."""
        return file_lock(self.path / ".lock", f"{self.path} is being trained by another process")

    def check_dataset(self) -> None:
        """Refuse a dataset that is not the one that the run was trained on.

        Other pixels in the same files are a warning: another version of an image decoder gives other pixels too. A run
        of an earlier version has no fingerprint; its classes are in its settings.
        """
        config = self.config()
        before = Fingerprint(config.class_names)
        if self.dataset_file.exists():
            try:
                before = TypeAdapter(Fingerprint).validate_python(read_json(self.dataset_file))
            except ValidationError as error:
                raise TorchcapsError(
                    f"{self.dataset_file} is not what torchcaps wrote: restore it, or remove it to do without"
                ) from error
        now = dataset_fingerprint(config.data)
        if changes := dataset_changes(before, now):
            raise TorchcapsError(
                f"{config.data} is not as it was when the run in {self.path} began: {changes}. Restore it, or train a "
                "new run"
            )
        if before.digests.get("pictures", "") != now.digests.get("pictures", "") and before.digests:
            log.warning(
                "%s: the pixels of its pictures are not those that it was trained on. Files were edited, or are "
                "decoded by another version of Pillow",
                self.path,
            )

    def training_record(self) -> dict[str, Any]:
        """What ``write_training_record`` wrote; empty if nothing can be read."""
        try:
            found = read_json(self.environment_file)["training"]
        except (TorchcapsError, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    def convolution_forms(self) -> dict[str, str]:
        """The form that each convolution takes in training, as far as it was recorded."""
        found = self.training_record().get("convolutions")
        pairs = found.items() if isinstance(found, dict) else ()
        return {name: form for name, form in pairs if form in FORMS}

    def write_training_record(self, record: dict[str, Any]) -> None:
        """Keep in environment.json what the bits of the weights depend on: threads, processor, forms."""
        try:
            environment = read_json(self.environment_file)
        except TorchcapsError:
            environment = {}
        kept = environment if isinstance(environment, dict) else {}
        write_json(self.environment_file, kept | {"training": record})


def new_run(config: RunConfig, path: Path) -> RunFolder:
    """Create the directory of a new run, which must be empty; if torchrun or Slurm started processes, one does it."""
    if not find_world(config).started:
        return _write_run(config, path)
    context = DistributedContext(make_fabric(config))
    with context.watched(path):
        path = Path(context.fabric.broadcast(str(path)))  # a name made from the time may differ
        if context.is_main:
            _write_run(config, path)
        context.wait()
    return RunFolder(path)


def _write_run(config: RunConfig, path: Path) -> RunFolder:
    """Write the files of a run that is about to begin."""
    run = RunFolder(checked_empty(path))
    existed = path.exists()
    try:
        write_json(run.environment_file, describe_environment())
        write_json(run.dataset_file, asdict(dataset_fingerprint(config.data)))
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


def is_free(path: Path) -> bool:
    """Whether a new run can be made here: nothing is there, or only what ``new_run`` leaves when it is killed."""
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
    """A path for a new run that nobody uses yet: time, model, data."""
    name = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{config.model}-{file_name(config.data)}"
    candidates = (parent / (name if number == 1 else f"{name}-{number}") for number in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def checked_empty(path: Path) -> Path:
    """The path, if nothing is there yet, or only the beginning of a run that was killed."""
    if not is_free(path):
        resume = f", or go on with it by --resume {path}" if RunFolder(path).config_file.is_file() else ""
        raise TorchcapsError(f"{path} is not empty: name another folder{resume}")
    return path


def change_devices(run: RunFolder, **changes: object) -> RunFolder:
    """Let a run go on elsewhere: on another device, or in another number of processes."""
    if not changes:
        return run
    config = run.config()
    # Processes that torchrun or Slurm started all come here at once.
    with contextlib.nullcontext() if find_world(config).started else run.locked():
        run.write_config(check(config.model_dump() | changes))
    return run


def is_main_process() -> bool:
    """Whether this process speaks for all that train with it."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def load(run: str | Path) -> Model:
    """The model of a run, with the weights that were best on the validation images, in evaluation mode.

    It takes pixels in [0, 1]: whatever preparation it was trained with is part of it. Its ``class_names`` say
    what its scores are for.
    """
    folder = open_run(Path(run))
    return load_model(folder.config(), folder.best)


def load_model(config: RunConfig, weights: Path, *, prefix: str = "model.") -> Model:
    """The model of these settings with the weights of a file, in evaluation mode."""
    model = config.build_model(weights, prefix=prefix)
    load_weights(weights, model, prefix=prefix)
    model.class_names = config.class_names
    return model.eval()
