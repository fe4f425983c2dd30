"""A model's folder in the Hub's format, perhaps a stranger's: every file is looked at before it is used.

Two files are read, by their names and no others: ``config.json``, plain values that are checked one by one, and
``model.safetensors``, numbers whose shapes must be those of the model. No pickle and no code is ever loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.models import Model
from torchcaps.train import RunConfig
from torchcaps.train.config import MOST_WEIGHTS, check
from torchcaps.train.load import load_model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
MOST_BYTES = {CONFIG: 1 << 20, WEIGHTS: MOST_WEIGHTS}
LIBRARY = "torchcaps"
# What config.json says beside the settings of the run.
ABOUT = ("library_name", "torchcaps_version", "preprocessing")


def from_folder(folder: Path) -> Model:
    """The model in a folder, in evaluation mode."""
    config = read_config(folder)
    weights = checked_file(folder, WEIGHTS)
    return load_model(config, weights, prefix="")


def read_config(folder: Path) -> RunConfig:
    """The settings of a folder's model."""
    path = checked_file(folder, CONFIG)
    values: Any = read_json(path)
    if not isinstance(values, dict) or values.get("library_name") != LIBRARY:
        raise TorchcapsError(f"{path} does not describe a torchcaps model: its library_name should be '{LIBRARY}'")
    return check({key: value for key, value in values.items() if key not in ABOUT})


def checked_file(folder: Path, name: str) -> Path:
    """A file of the folder, if it is an ordinary one of a possible size that really lies there.

    In the cache of the Hub, and only there, files are links from ``snapshots/REVISION`` to ``blobs`` beside it.
    """
    path = folder / name
    if not path.exists():
        raise TorchcapsError(f"{folder} has no {name}, so it holds no model: one is written by save_pretrained")
    home, real = folder.resolve(), path.resolve()
    cached = home.parent.name == "snapshots" and home.parents[1].name.startswith("models--")
    # Nothing in the second path is resolved again: if blobs itself were a link, the real file would lie elsewhere.
    allowed = [home, home.parents[1] / "blobs"] if cached else [home]
    if not any(real.is_relative_to(each) for each in allowed):
        raise TorchcapsError(f"{path} leads out of its folder: refused. Put a copy of the file in its place")
    if not real.is_file():
        raise TorchcapsError(f"{path} is not a file, so it cannot be read")
    check_size(str(path), name, real.stat().st_size)
    return path


def check_size(where: str, name: str, size: int) -> None:
    """Refuse a file that is larger than any of its kind."""
    if size > MOST_BYTES[name]:
        raise TorchcapsError(f"{where} has {size:,} bytes, more than any file of its kind: refused")
