"""From a trained model to a folder in the Hub's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchcaps.environment import package_version, without_folders
from torchcaps.files import make_folder, write_json, write_text
from torchcaps.hub.folder import CARD, CONFIG, LIBRARY, WEIGHTS
from torchcaps.pretrained.load import file_hash
from torchcaps.pretrained.model_card import model_card
from torchcaps.pretrained.trained import Trained, describe_input, open_trained
from torchcaps.train import RunConfig
from torchcaps.train.checkpoint import save_weights


def save_pretrained(source: str | Path, folder: str | Path, *, repository: str | None = None) -> Path:
    """Write a run's model, or a shipped one, as a folder that :func:`from_pretrained` reads.

    Args:
        source: the folder of a run, or the name of shipped weights.
        folder: where to; what is in it under the same names is replaced.
        repository: for the card, the name under which the folder will be found on the Hub.
    """
    trained, target = open_trained(source), make_folder(Path(folder))
    # The settings come last: a folder that has them is whole.
    save_weights(target / WEIGHTS, trained.model, prefix="")
    line = f'torchcaps.from_pretrained("{repository or target.resolve().name}")'
    write_text(target / CARD, model_card(public(trained), load_with=line, sha256=file_hash(target / WEIGHTS)))
    write_json(target / CONFIG, describe_config(public(trained).config))
    return target


def public(trained: Trained) -> Trained:
    """The same without folders of this machine: a dataset of one's own is named by where it lies."""
    family, colon, rest = trained.config.data.partition(":")
    data = f"{family}{colon}{without_folders(rest)}" if colon else family
    return Trained(**vars(trained) | {"config": trained.config.model_copy(update={"data": data})})


def describe_config(config: RunConfig) -> dict[str, Any]:
    """What config.json holds: every setting of the run, and what a reader needs to know."""
    about = {
        "library_name": LIBRARY,
        "torchcaps_version": package_version("torchcaps"),
        "preprocessing": describe_input(config.image_shape),
    }
    return about | config.model_dump(mode="json")
