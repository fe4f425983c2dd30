"""The config of a run: complete, validated, and written into the run directory."""

from __future__ import annotations

import contextlib
import inspect
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch import nn
from torch.overrides import TorchFunctionMode

from torchcaps.data import Augmentation, datasets
from torchcaps.data.transforms import expand_preset
from torchcaps.environment import machine_memory
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import read_yaml
from torchcaps.losses import losses
from torchcaps.models import Model, create_model, models
from torchcaps.models.backbone import choose_backbone
from torchcaps.models.registry import BACKBONE_SETTINGS
from torchcaps.routing.base import LayerShape
from torchcaps.train.adversarial import parse_adversarial
from torchcaps.train.checkpoint import check_weights
from torchcaps.train.optimizers import make_schedule, optimizers, peak_rate

MOST_WEIGHTS = 16 << 30  # bytes of a model
MOST_COUNT = 1 << 63  # of images, steps and the like
MOST_VALUES = 1000  # in a model's options: a list of sizes makes a layer of each
PYTHON = "python"  # the dataset of a run that torchcaps.fit trained, and how the name of its model begins


class RunConfig(BaseModel):
    """Every setting of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    model: str
    size: Literal["paper", "laptop"] = "laptop"
    options: dict[str, Any] = Field(default_factory=dict)  # of the model, such as its routing
    data: str = "mnist"
    # Recorded so that the model can be loaded on a machine without the dataset.
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...] = Field(min_length=2)
    train_images: int | None = Field(default=None, ge=2, lt=MOST_COUNT)  # None: all of the training split
    test_images: int | None = Field(default=None, ge=1, lt=MOST_COUNT)  # None: all of the test split
    validation: float = Field(default=0.1, gt=0, lt=1)  # fraction of the training images that selects the checkpoint
    augmentation: str
    seed: int = Field(default=0, ge=0, lt=2**31)
    epochs: int = Field(default=5, ge=1, lt=MOST_COUNT)
    steps: int | None = Field(default=None, ge=1, lt=MOST_COUNT)  # stop here, if the epochs have more
    stop_at_accuracy: float | None = Field(default=None, gt=0, le=1)  # stop at this accuracy on `stop_on`
    stop_on: str = "validation"  # the split that selects the checkpoint; never the test set
    batch_size: int = Field(ge=1, lt=MOST_COUNT)
    loss: str
    reconstruction: Literal["sum", "mean"]  # of the squared error over an image's pixels
    reconstruction_weight: float = Field(ge=0)
    optimizer: str
    learning_rate: float = Field(gt=0)
    schedule: str
    clip_norm: float | None = Field(default=None, gt=0)  # largest norm of the gradient; None: no clipping
    weight_decay: float | None = Field(default=None, ge=0)  # None: the optimizer's default
    balance: Literal["weights", "sample"] | None = None  # weigh the loss by class, or show classes equally often
    start_from: str | None = None  # the network whose weights the run starts with; they are in the run directory
    margin_pace: float | None = Field(default=None, ge=0)  # how much of its schedule the loss completes; None: all
    adversarial: str | None = None  # such as "pgd:0.1:5": train on perturbed images; None: on clean ones
    device: str = "auto"
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    devices: int = Field(default=1, ge=1, le=1024)  # processes per machine, one device each; they share a batch
    nodes: int = Field(default=1, ge=1, le=4096)  # machines
    strategy: Literal["ddp", "fsdp"] = "ddp"  # each process holds all weights (ddp) or a shard of them (fsdp)
    save_minutes: float = Field(default=1.0, ge=0)  # between two checkpoints; 0: after every step

    @field_validator("optimizer")
    @classmethod
    def _check_optimizer(cls, name: str) -> str:
        return optimizers.get(name).name

    def check_registered(self) -> None:
        """Raise an error for a run of ``torchcaps.fit``, whose model and images exist only in Python."""
        if self.model.startswith(f"{PYTHON}:"):
            raise TorchcapsError(
                f"this run was trained by torchcaps.fit with a model that is not registered "
                f"({self.model.removeprefix(f'{PYTHON}:')}): it cannot be resumed or loaded from the command line. "
                "Call torchcaps.fit in Python with the same model, images and out="
            )

    def build_model(self, weights: Path | None = None, *, prefix: str = "model.") -> Model:
        """Build the model with random weights, for the images of the dataset.

        ``weights`` is a file whose weights will replace them; its shapes are compared first. If they only fit the
        laptop size of an earlier release, the model is built in that size.
        """
        try:
            self.check_model(weights, prefix=prefix)
        except TorchcapsError:
            earlier = self._earlier_size(weights, prefix)
            if earlier is None:
                raise
            return earlier._create_model()
        return self._create_model()

    def _earlier_size(self, weights: Path | None, prefix: str) -> RunConfig | None:
        """Return this config with the laptop size of an earlier release that fits the weights, if there is one."""
        known = models.get(self.model).earlier_laptop if self.model in models else ()
        for settings in known if self.size == "laptop" and weights is not None else ():
            config = self.model_copy(update={"options": settings | self.options})
            with contextlib.suppress(TorchcapsError):
                config.check_model(weights, prefix=prefix)
                return config
        return None

    def check_model(self, weights: Path | None = None, *, prefix: str = "model.") -> None:
        """Raise an error if the model cannot be built, does not fit into memory, or does not fit a file of weights.

        Nothing is allocated.
        """
        self.check_registered()
        known = [*models.get(self.model).settings(), *BACKBONE_SETTINGS]
        for option in self.options:
            if option not in known:
                raise unknown_name(f"setting of {self.model}", option, known)
        kinds = inspect.signature(models.get(self.model).build).parameters
        for option, value in self.options.items():
            if isinstance(value, bool) and option in kinds and kinds[option].annotation in ("int", "float", int, float):
                raise TorchcapsError(f"{self.model} cannot be built: its setting '{option}' is a number, got {value}")
        if sum(1 for _ in values_in(self.options)) > MOST_VALUES:
            raise TorchcapsError(f"{self.model} cannot be built: its options hold more than {MOST_VALUES} values")
        shapes = self.meta_model()
        empty = [name for name, weight in shapes.named_parameters() if not weight.numel()]
        if empty:
            raise TorchcapsError(
                f"{self.model} cannot be built with these settings: '{empty[0]}' would have no weights; sizes must be "
                "at least 1"
            )
        held, working = memory_needed(shapes)
        copies = 1 if weights is None else 2  # saved weights are in memory together with those that they replace
        if copies * held + working > min(MOST_WEIGHTS, machine_memory()):
            raise TorchcapsError(
                f"{self.model} with these settings has {held:,} bytes of weights and needs {working:,} more for one "
                "image, more than this machine has: choose smaller settings"
            )
        if weights is not None:
            check_weights(weights, shapes, prefix=prefix)

    def meta_model(self) -> Model:
        """Build the model on the meta device: it has shapes but no values, and nothing is allocated."""
        with torch.device("meta"), NoValues():
            return self._create_model()

    def weight_shapes(self) -> dict[str, torch.Size]:
        """Return the shape of each weight and buffer of the model, without allocating it."""
        return {name: value.shape for name, value in self.meta_model().state_dict().items()}

    def _create_model(self) -> Model:
        try:
            return create_model(
                self.model,
                image_size=self.image_shape[1:],
                channels=self.image_shape[0],
                classes=len(self.class_names),
                size=self.size,
                # ``resolve`` records the choice for large images; runs of earlier releases have no backbone.
                **{"backbone": "none"} | self.options,
            )
        except TorchcapsError:
            raise
        except Exception as error:  # an option of the wrong type fails differently in every layer
            reason = " ".join(str(error).split())[:300]
            settings = reprlib.repr(self.options)
            raise TorchcapsError(f"{self.model} cannot be built with the settings {settings}: {reason}") from error


def resolve(**given: Any) -> RunConfig:
    """Complete the given settings with the recipe of the model and the defaults of the dataset.

    Every name and value is checked, before anything is written or trained.
    """
    given = {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in RunConfig.model_fields:
            raise unknown_name("setting", key, RunConfig.model_fields)
    if "model" not in given:
        raise TorchcapsError(f"no model was given. One of: {', '.join(models.names())}")
    recipe = models.get(given["model"]).recipe
    dataset = datasets.get(given.get("data", "mnist"))
    paper = given.get("size") == "paper"
    several = dataset.labels_per_image > 1
    shape = given.get("image_shape", dataset.input_shape)
    chosen = choose_backbone(shape)
    if chosen != "none":
        given["options"] = {"backbone": chosen} | given.get("options", {})
    defaults = {
        "loss": "bce" if several and losses.get(recipe.loss).single_label else recipe.loss,
        "reconstruction": recipe.reconstruction,
        "reconstruction_weight": recipe.reconstruction_weight,
        "optimizer": recipe.optimizer,
        "learning_rate": recipe.learning_rate,
        "schedule": recipe.schedule if paper else recipe.laptop_schedule or recipe.schedule,
        "batch_size": recipe.batch_size if paper else recipe.laptop_batch_size,
        "augmentation": dataset.augmentation,
        "image_shape": dataset.input_shape,
        "class_names": dataset.class_names,
    }
    if "augmentation" in given:
        given["augmentation"] = expand_preset(str(given["augmentation"]), min(shape[1:]))
    config = validate_config(defaults | given | {"data": dataset.name})  # the full name of a folder of images
    if losses.get(config.loss).single_label and several:
        raise TorchcapsError(
            f"loss '{config.loss}' takes one label per image, but {config.data} has {dataset.labels_per_image}: "
            "use 'margin' or 'bce'"
        )
    if config.balance and several:
        raise TorchcapsError(f"balance needs one label per image, but {config.data} has {dataset.labels_per_image}")
    if config.adversarial is not None and several:
        raise TorchcapsError(
            f"adversarial training needs one label per image, but {config.data} has {dataset.labels_per_image}: "
            "choose another dataset, or train on clean images"
        )
    stop_splits = ["validation", *(split for split in dataset.splits if split not in ("train", "test"))]
    if config.stop_on not in stop_splits:
        raise unknown_name("split to stop on", config.stop_on, stop_splits)
    check_names(config)
    peak = peak_rate(config.schedule)
    if peak is None:
        return config
    if given.get("learning_rate", peak) != peak:
        raise TorchcapsError(
            f"schedule '{config.schedule}' sets the learning rate, got a learning rate of {config.learning_rate} too: "
            "omit one of them"
        )
    return config.model_copy(update={"learning_rate": peak})


def check_names(config: RunConfig) -> None:
    """Raise an error if the loss, schedule or augmentation of a config is unknown."""
    losses.get(config.loss)
    make_schedule(config.schedule)
    Augmentation(config.augmentation)
    if config.adversarial is not None:
        parse_adversarial(config.adversarial)


def validate_config(values: dict[str, Any]) -> RunConfig:
    """Validate settings; the error says in one sentence what is wrong."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "settings"
        if first["type"] == "extra_forbidden":
            raise unknown_name("setting", key, RunConfig.model_fields) from error
        raise TorchcapsError(f"setting '{key}' is {reprlib.repr(first.get('input'))}: {first['msg']}") from error


def values_in(value: Any) -> Iterator[Any]:
    """Iterate over every value in nested lists and mappings."""
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from values_in(part)
    else:
        yield value


# With a tensor and a number, such as ``torch.randn(3) * 0.1``, the result has the shape of the tensor.
VALUES_ONLY = (torch.Tensor.normal_, torch.Tensor.mul, torch.Tensor.add, torch.Tensor.div)


class NoValues(TorchFunctionMode):
    """Skip functions that only compute values: on the meta device they import a compiler, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.randn:
            return torch.empty(*args, **kwargs or {})
        if func in VALUES_ONLY and not any(isinstance(each, torch.Tensor) for each in args[1:]):
            return args[0]
        if func is torch.arange and len(args) == 1 and not kwargs:
            return torch.empty(args[0], dtype=torch.long)
        return func(*args, **kwargs or {})


def memory_needed(model: Model) -> tuple[int, int]:
    """Return the bytes of a model's weights and buffers, and a bound on its largest activation for one image."""
    tensors = [*model.parameters(), *model.buffers()]
    held = sum(value.numel() * value.element_size() for value in tensors)
    channels, height, width = model.image_shape
    values = [channels * height * width]
    for module in model.modules():
        shape = getattr(module, "shape", None)
        if isinstance(shape, LayerShape):  # the votes
            values.append(shape.positions * shape.children * shape.parents * shape.size)
        elif isinstance(module, nn.Conv2d):  # no convolution of these models enlarges an image
            values.append(module.out_channels * height * width)
    return held, 4 * max(values)


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings from a YAML file; only plain values, no code is executed."""
    values = read_yaml(path)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise TorchcapsError(f"{path} should hold lines like 'model: capsnet', got {type(values).__name__}")
    return values
