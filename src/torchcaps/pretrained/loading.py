"""Load trained models, from a run directory or from pretrained weights, with their config and results."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model
from torchcaps.pretrained.cards import ROOT, Card, list_pretrained
from torchcaps.train import RunConfig, RunFolder, load, open_run
from torchcaps.train.run_folder import load_model

WEIGHTS = "weights.safetensors"


def load_pretrained(card: Card, root: Path = ROOT) -> Model:
    """Load the network of a card in evaluation mode, after checking the hash of its file.

    The weights are stored in half precision and loaded as float32.
    """
    folder = root / card.name
    if file_hash(folder / WEIGHTS) != card.sha256:
        raise TorchcapsError(f"{folder / WEIGHTS} does not have the hash in its card: reinstall torchcaps")
    return load_model(RunFolder(folder).config(), folder / WEIGHTS)


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
    commit, versions and hardware of the training.
    """

    name: str
    model: Model
    config: RunConfig
    result: dict[str, Any]
    training: dict[str, Any]


def load_trained(source: str | Path) -> TrainedModel:
    """Load the model of a run directory, or pretrained weights by name.

    >>> load_trained("capsnet-mnist-laptop").config.data
    'mnist'
    """
    if Path(source).is_dir():
        return load_trained_run(Path(source))
    cards = {card.name: card for card in list_pretrained()}
    if str(source) not in cards:
        raise unknown_name("run directory or pretrained network", str(source), cards)
    return load_shipped(cards[str(source)])


def load_trained_run(path: Path) -> TrainedModel:
    """Load the model of a run directory."""
    run = open_run(path)
    result = run.result() if run.result_file.is_file() else {}
    if "test_accuracy" in result:
        run.result("test_images", "selection_split")
    return TrainedModel(path.resolve().name, load(path), run.config(), result, run.environment())


def load_shipped(card: Card) -> TrainedModel:
    """Load the model of a card."""
    config = RunFolder(ROOT / card.name).config()
    return TrainedModel(card.name, load_pretrained(card), config, card.model_dump(exclude={"training"}), card.training)


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
