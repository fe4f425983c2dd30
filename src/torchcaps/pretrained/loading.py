"""Load trained models, from a run directory or from pretrained weights, with their config and results.

Each directory ``<model>-<tag>`` beside this file holds pretrained weights and a card.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import read_json
from torchcaps.models import Model
from torchcaps.train import RunConfig, RunFolder, load, open_run
from torchcaps.train.run_folder import load_model
from torchcaps.train.run_images import ErrorReference, read_error_reference

ROOT = Path(__file__).parent
DEFAULT_TAG = "mnist-laptop"


class Card(BaseModel):
    """Origin and test accuracy of pretrained weights; written by ``scripts/bundle_weights.py``, never by hand."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str
    tag: str
    data: str
    parameters: int
    test_accuracy: float  # of the stored weights, on the full test set
    test_images: int
    selection_split: str  # the images that selected the checkpoint
    sha256: str  # of weights.safetensors
    training: dict[str, Any]  # command, commit, versions and hardware
    licence: str  # of the training images

    @property
    def name(self) -> str:
        """The name of the weights and of their directory."""
        return f"{self.model}-{self.tag}"


def list_pretrained(root: Path = ROOT) -> list[Card]:
    """Return the cards of all pretrained networks, sorted by name.

    >>> "capsnet-mnist-laptop" in [card.name for card in list_pretrained()]
    True
    """
    return [read_card(path) for path in sorted(root.glob("*/card.json"))]


def read_card(path: Path) -> Card:
    """Read a card; the error says in one sentence what is wrong with it."""
    try:
        return Card.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TorchcapsError(f"{path} is not the card of a network: {where}: {first['msg']}") from error


def find_card(model: str, tag: str | None, root: Path = ROOT) -> Card:
    """Return the card of a model's weights by tag, by default those for MNIST.

    The error names the closest tag, or the models with weights.
    """
    cards = list_pretrained(root)
    tags = {card.tag: card for card in cards if card.model == model}
    if not tags:
        having = ", ".join(sorted({card.model for card in cards})) or "none"
        raise TorchcapsError(f"there are no pretrained weights for model '{model}'. Models with weights: {having}")
    if tag is None:
        return tags.get(DEFAULT_TAG) or next(iter(tags.values()))
    if tag not in tags:
        raise unknown_name(f"weights of {model}", tag, tags)
    return tags[tag]


@dataclass(frozen=True)
class Samples:
    """Test images (N, C, H, W) as bytes, and labels (N,), or (N, 2) with two labels per image."""

    images: Tensor
    labels: Tensor


def load_samples(data: str, root: Path = ROOT) -> Samples | None:
    """Load the test images of a dataset that ship with the package; None if there are none."""
    path = samples_file(data, root)
    if not path.is_file():
        return None
    try:
        tensors = load_file(path)
        return Samples(tensors["images"], tensors["labels"])
    except (SafetensorError, OSError, KeyError) as error:
        raise TorchcapsError(f"{path} cannot be read ({error}): reinstall torchcaps") from error


def samples_file(data: str, root: Path = ROOT) -> Path:
    """Return the path of a dataset's images; it does not exist for names with other than letters, digits and dashes."""
    return root / "samples" / f"{data if data.replace('-', '').isalnum() else 'none'}.safetensors"


WEIGHTS = "weights.safetensors"


def load_pretrained(card: Card, root: Path = ROOT) -> Model:
    """Load the network of a card in evaluation mode, after checking the hash of its file.

    The weights are stored in half precision and loaded as float32.
    """
    folder = root / card.name
    check_hash(card, root)
    return load_model(RunFolder(folder).config(), folder / WEIGHTS)


def check_hash(card: Card, root: Path = ROOT) -> None:
    """Raise an error if pretrained weights do not have the hash in their card."""
    weights = root / card.name / WEIGHTS
    if file_hash(weights) != card.sha256:
        raise TorchcapsError(f"{weights} does not have the hash in its card: reinstall torchcaps")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TorchcapsError(f"{path} cannot be read: {error.strerror}. Reinstall torchcaps") from error


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its origin.

    ``result`` is the result file of the run, empty if it was not tested, or the card. ``training`` holds the command,
    commit, versions and hardware of the training. ``errors`` are the reconstruction errors of validation images; None
    if they were not measured, as in runs of earlier releases and in models without a decoder.
    """

    name: str
    model: Model
    config: RunConfig
    result: dict[str, Any]
    training: dict[str, Any]
    errors: ErrorReference | None = None


def load_trained(source: str | Path) -> TrainedModel:
    """Load the model of a run directory, or pretrained weights by name.

    >>> load_trained("capsnet-mnist-laptop").config.data
    'mnist'
    """
    if (card := _card_named(source)) is not None:
        return load_shipped(card)
    if Path(source).is_dir():
        return load_trained_run(Path(source))
    raise unknown_name("run directory or pretrained network", str(source), [card.name for card in list_pretrained()])


def load_trained_run(path: Path) -> TrainedModel:
    """Load the model of a run directory."""
    run = open_run(path)
    result = run.result() if run.result_file.is_file() else {}
    if "test_accuracy" in result:
        run.result("test_images", "selection_split")
    return TrainedModel(
        path.resolve().name, load(path), run.config(), result, run.environment(), read_error_reference(run)
    )


def open_trained(source: str | Path) -> RunFolder:
    """Open a run directory, or the directory of pretrained weights by name, after checking the hash of its file."""
    card = _card_named(source)
    if card is None:
        return open_run(Path(source))
    check_hash(card)
    return RunFolder(ROOT / card.name)


def _card_named(source: str | Path) -> Card | None:
    """Return the card of the pretrained weights of that name; None if there are none, or a run has the same name.

    A directory of that name is not enough: commands write what they compute for these weights into it.
    """
    if RunFolder(Path(source)).config_file.is_file():
        return None
    return next((card for card in list_pretrained() if card.name == str(source)), None)


def output_folder(run: RunFolder, name: str) -> Path:
    """Return the directory for output of a command: in the run directory, or for shipped weights in ./NAME."""
    return Path(run.path.name) / name if run.path.parent == ROOT else run.output(name)


def load_shipped(card: Card) -> TrainedModel:
    """Load the model of a card."""
    folder, result = RunFolder(ROOT / card.name), card.model_dump(exclude={"training"})
    errors = read_error_reference(folder)
    return TrainedModel(card.name, load_pretrained(card), folder.config(), result, card.training, errors)


def describe_input(image_shape: tuple[int, int, int]) -> str:
    """Describe the input of a model. It is the same for all, because preprocessing is part of the model.

    >>> describe_input((1, 28, 28))
    'pixels in [0, 1] as float32 (batch, 1, 28, 28); the model does any other preparation itself'
    """
    shape = ", ".join(map(str, image_shape))
    return f"pixels in [0, 1] as float32 (batch, {shape}); the model does any other preparation itself"


def weight_rows() -> list[dict[str, Any]]:
    """Return a row for each pretrained network: its card, input, classes and file size."""
    return [_weight_row(card) for card in list_pretrained()]


def _weight_row(card: Card) -> dict[str, Any]:
    config = RunFolder(ROOT / card.name).config()
    return {
        "name": card.name,
        **card.model_dump(mode="json"),
        "classes": list(config.class_names),
        "preprocessing": describe_input(config.image_shape),
        "bytes": (ROOT / card.name / WEIGHTS).stat().st_size,
    }
