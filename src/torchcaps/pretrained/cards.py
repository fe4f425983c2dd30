"""What there is of ready weights: a folder ``<model>-<tag>`` for each network, with a card beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import read_json

# MERGED A few test images for trying a model where its dataset is not at hand.
ROOT = Path(__file__).parent


class Card(BaseModel):
    """Where weights come from and what they are worth; written by ``scripts/bundle_weights.py``, never by hand."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str
    tag: str
    data: str
    parameters: int
    test_accuracy: float  # of the stored weights, on the whole test split
    test_images: int
    selection_split: str  # which images chose the checkpoint
    sha256: str  # of weights.safetensors
    training: dict[str, Any]  # command, commit, versions and hardware of the run
    licence: str  # of the images it was trained on

    @property
    def name(self) -> str:
        """Also its folder's name."""
        return f"{self.model}-{self.tag}"


def list_pretrained(root: Path = ROOT) -> list[Card]:
    """The cards of all networks that are shipped, by name.

    >>> "capsnet-mnist-laptop" in [card.name for card in list_pretrained()]
    True
    """
    return [read_card(path) for path in sorted(root.glob("*/card.json"))]


def read_card(path: Path) -> Card:
    """A card from its file, or one sentence that says what is wrong with it."""
    try:
        return Card.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TorchcapsError(f"{path} is not the card of a network: {where}: {first['msg']}") from error


def find_card(model: str, tag: str, root: Path = ROOT) -> Card:
    """The card of a model's weights by tag, or an error that names the nearest tag or the models that have any."""
    cards = list_pretrained(root)
    tags = {card.tag: card for card in cards if card.model == model}
    if not tags:
        having = ", ".join(sorted({card.model for card in cards})) or "none"
        raise TorchcapsError(f"no weights are shipped for model '{model}'. Models with weights: {having}")
    if tag not in tags:
        raise unknown_name(f"weights of {model}", tag, tags)
    return tags[tag]


@dataclass(frozen=True)
class Samples:
    """Shapes: ``images`` (N, C, H, W) bytes; ``labels`` (N,), or (N, 2) where two things are in an image."""

    images: Tensor
    labels: Tensor


def load_samples(data: str, root: Path = ROOT) -> Samples | None:
    """Test images of a dataset, by its name; None if none are shipped."""
    path = samples_file(data, root)
    if not path.is_file():
        return None
    try:
        tensors = load_file(path)
        return Samples(tensors["images"], tensors["labels"])
    except (SafetensorError, OSError, KeyError) as error:
        raise TorchcapsError(f"{path} cannot be read ({error}): install torchcaps again") from error


def samples_file(data: str, root: Path = ROOT) -> Path:
    """Where the images of a dataset lie; of a name with anything but letters, digits and dashes, nowhere."""
    return root / "samples" / f"{data if data.replace('-', '').isalnum() else 'none'}.safetensors"
