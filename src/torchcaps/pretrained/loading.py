"""From a card to a model ready for use."""

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

# MERGED A trained model with all that is known of it: from the folder of a run, or of the weights that
# MERGED The weights that are shipped, as rows for a listing.
WEIGHTS = "weights.safetensors"


def load_pretrained(card: Card, root: Path = ROOT) -> Model:
    """The network of a card in evaluation mode, after its file was compared with the card's hash.

    Weights lie on disk in half precision and become float32 as they are put into the model.
    """
    folder = root / card.name
    if file_hash(folder / WEIGHTS) != card.sha256:
        raise TorchcapsError(f"{folder / WEIGHTS} is not the file that its card describes: install torchcaps again")
    return load_model(RunFolder(folder).config(), folder / WEIGHTS)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TorchcapsError(f"{path} cannot be read: {error.strerror}. Install torchcaps again") from error


@dataclass(frozen=True)
class TrainedModel:
    """A model ready for use.

    ``result`` is what was measured of it: the run's result file or the card, empty where a run was never tested.
    ``training`` says with what it was made: command, commit, versions, hardware.
    """

    name: str
    model: Model
    config: RunConfig
    result: dict[str, Any]
    training: dict[str, Any]


def load_trained(source: str | Path) -> TrainedModel:
    """The model of a run's folder, or of shipped weights by their name.

    >>> load_trained("capsnet-mnist-laptop").config.data
    'mnist'
    """
    if Path(source).is_dir():
        return load_trained_run(Path(source))
    cards = {card.name: card for card in list_pretrained()}
    if str(source) not in cards:
        raise unknown_name("run's folder or shipped network", str(source), cards)
    return load_shipped(cards[str(source)])


def load_trained_run(path: Path) -> TrainedModel:
    """The model of a run, by its folder's name."""
    run = open_run(path)
    result = run.result() if run.result_file.is_file() else {}
    if "test_accuracy" in result:
        run.result("test_images", "selection_split")
    return TrainedModel(path.resolve().name, load(path), run.config(), result, run.environment())


def load_shipped(card: Card) -> TrainedModel:
    """The model of a card."""
    config = RunFolder(ROOT / card.name).config()
    return TrainedModel(card.name, load_pretrained(card), config, card.model_dump(exclude={"training"}), card.training)


def describe_input(image_shape: tuple[int, int, int]) -> str:
    """What a model takes, in words: the same for all, since their own preparation is their first layer.

    >>> describe_input((1, 28, 28))
    'pixels in [0, 1] as float32 (batch, 1, 28, 28); the model does any other preparation itself'
    """
    shape = ", ".join(map(str, image_shape))
    return f"pixels in [0, 1] as float32 (batch, {shape}); the model does any other preparation itself"


def weight_rows() -> list[dict[str, Any]]:
    """For each network its card, with what it takes, its classes and the size of its file."""
    return [weight_row(card) for card in list_pretrained()]


def weight_row(card: Card) -> dict[str, Any]:
    """One row."""
    config = RunFolder(ROOT / card.name).config()
    return {
        "name": card.name,
        **card.model_dump(mode="json"),
        "classes": list(config.class_names),
        "preprocessing": describe_input(config.image_shape),
        "bytes": (ROOT / card.name / WEIGHTS).stat().st_size,
    }
