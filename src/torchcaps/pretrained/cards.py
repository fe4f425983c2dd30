"""Cards of the pretrained weights, one directory ``<model>-<tag>`` each, and test images to try them on."""

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

ROOT = Path(__file__).parent


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


def find_card(model: str, tag: str, root: Path = ROOT) -> Card:
    """Return the card of a model's weights by tag; the error names the closest tag, or the models with weights."""
    cards = list_pretrained(root)
    tags = {card.tag: card for card in cards if card.model == model}
    if not tags:
        having = ", ".join(sorted({card.model for card in cards})) or "none"
        raise TorchcapsError(f"there are no pretrained weights for model '{model}'. Models with weights: {having}")
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
