"""From a card to a model ready for use."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.pretrained.cards import ROOT, Card
from torchcaps.train import RunFolder
from torchcaps.train.load import load_model

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
