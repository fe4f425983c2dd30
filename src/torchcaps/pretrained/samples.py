"""A few test images for trying a model where its dataset is not at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.pretrained.cards import ROOT


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
