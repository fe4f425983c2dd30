"""A trained model with all that is known of it: from the folder of a run, or of the weights that are shipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import unknown_name
from torchcaps.models import Model
from torchcaps.pretrained.cards import ROOT, Card, list_pretrained
from torchcaps.pretrained.load import load_pretrained
from torchcaps.train import RunConfig, RunFolder, load, open_run


@dataclass(frozen=True)
class Trained:
    """A model ready for use.

    ``result`` is what was measured of it: the run's result file or the card, empty where a run was never tested.
    ``training`` says with what it was made: command, commit, versions, hardware.
    """

    name: str
    model: Model
    config: RunConfig
    result: dict[str, Any]
    training: dict[str, Any]


def open_trained(source: str | Path) -> Trained:
    """The model of a run's folder, or of shipped weights by their name.

    >>> open_trained("capsnet-mnist-laptop").config.data
    'mnist'
    """
    if Path(source).is_dir():
        return open_trained_run(Path(source))
    cards = {card.name: card for card in list_pretrained()}
    if str(source) not in cards:
        raise unknown_name("run's folder or shipped network", str(source), cards)
    return open_shipped(cards[str(source)])


def open_trained_run(path: Path) -> Trained:
    """The model of a run, by its folder's name."""
    run = open_run(path)
    result = run.result() if run.result_file.is_file() else {}
    if "test_accuracy" in result:
        run.result("test_images", "selection_split")
    return Trained(path.resolve().name, load(path), run.config(), result, run.environment())


def open_shipped(card: Card) -> Trained:
    """The model of a card."""
    config = RunFolder(ROOT / card.name).config()
    return Trained(card.name, load_pretrained(card), config, card.model_dump(exclude={"training"}), card.training)


def describe_input(image_shape: tuple[int, int, int]) -> str:
    """What a model takes, in words: the same for all, since their own preparation is their first layer.

    >>> describe_input((1, 28, 28))
    'pixels in [0, 1] as float32 (batch, 1, 28, 28); the model does any other preparation itself'
    """
    shape = ", ".join(map(str, image_shape))
    return f"pixels in [0, 1] as float32 (batch, {shape}); the model does any other preparation itself"
