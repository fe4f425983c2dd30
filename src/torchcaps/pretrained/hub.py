"""Models in the format of the Hugging Face Hub: a folder that anybody can load, on this machine or through the Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchcaps.environment import package_version, without_folders
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.files import make_folder, read_json, write_json, write_text
from torchcaps.models import Model
from torchcaps.pretrained.loading import TrainedModel, describe_input, file_hash, load_trained
from torchcaps.pretrained.model_card import model_card
from torchcaps.train import RunConfig
from torchcaps.train.checkpoint import save_weights
from torchcaps.train.config import MOST_WEIGHTS, validate_config
from torchcaps.train.run_folder import load_model

__all__ = ["from_folder", "from_pretrained", "push_to_hub", "save_pretrained"]

# MERGED A model's folder in the Hub's format, perhaps a stranger's: every file is looked at before it i
# MERGED From a trained model to a folder in the Hub's format.
# MERGED To the Hugging Face Hub and back; a folder on this machine needs neither a network nor the extr
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
    return validate_config({key: value for key, value in values.items() if key not in ABOUT})


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


def save_pretrained(source: str | Path, folder: str | Path, *, repository: str | None = None) -> Path:
    """Write a run's model, or a shipped one, as a folder that :func:`from_pretrained` reads.

    Args:
        source: the folder of a run, or the name of shipped weights.
        folder: where to; what is in it under the same names is replaced.
        repository: for the card, the name under which the folder will be found on the Hub.
    """
    trained, target = load_trained(source), make_folder(Path(folder))
    # The settings come last: a folder that has them is whole.
    save_weights(target / WEIGHTS, trained.model, prefix="")
    line = f'torchcaps.from_pretrained("{repository or target.resolve().name}")'
    write_text(target / CARD, model_card(public(trained), load_with=line, sha256=file_hash(target / WEIGHTS)))
    write_json(target / CONFIG, describe_config(public(trained).config))
    return target


def public(trained: TrainedModel) -> TrainedModel:
    """The same without folders of this machine: a dataset of one's own is named by where it lies."""
    family, colon, rest = trained.config.data.partition(":")
    data = f"{family}{colon}{without_folders(rest)}" if colon else family
    return TrainedModel(**vars(trained) | {"config": trained.config.model_copy(update={"data": data})})


def describe_config(config: RunConfig) -> dict[str, Any]:
    """What config.json holds: every setting of the run, and what a reader needs to know."""
    about = {
        "library_name": LIBRARY,
        "torchcaps_version": package_version("torchcaps"),
        "preprocessing": describe_input(config.image_shape),
    }
    return about | config.model_dump(mode="json")


def from_pretrained(source: str | Path, *, revision: str | None = None) -> Model:
    """The model in a folder, or in a repository of the Hub, in evaluation mode.

    Args:
        source: a folder that :func:`save_pretrained` wrote, or ``owner/name`` on the Hub.
        revision: a branch, tag or commit of the repository; None: its newest.
    """
    if Path(source).is_dir():
        return from_folder(Path(source))
    if str(source).count("/") != 1:
        raise TorchcapsError(f"'{source}' is neither a folder nor a repository of the Hub, such as owner/name")
    return from_folder(download_files(str(source), revision))


def push_to_hub(source: str | Path, repository: str, *, private: bool = False) -> str:
    """Write a run's model, or a shipped one, into a repository of the Hub, which is made if need be; its address.

    Who may write there is settled by ``hf auth login``.
    """
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import HfApi

    api = HfApi(library_name=LIBRARY, library_version=package_version("torchcaps"))
    with tempfile.TemporaryDirectory(prefix="torchcaps-") as folder:
        save_pretrained(source, folder, repository=repository)
        with hub_errors(repository):
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model written by torchcaps")
    return str(address)


def download_files(repository: str, revision: str | None) -> Path:
    """The folder in the Hub's cache with a repository's two files, whose sizes were asked for before they came."""
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import hf_hub_download

    for name in (CONFIG, WEIGHTS):
        with hub_errors(repository):
            check_size(f"{name} of {repository}", name, claimed_size(repository, name, revision))
            path = hf_hub_download(repository, name, revision=revision, library_name=LIBRARY)
    return Path(path).parent


def claimed_size(repository: str, name: str, revision: str | None) -> int:
    """How large the Hub says a file is; 0 without a network, where only what was fetched before can be used."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return get_hf_file_metadata(hf_hub_url(repository, name, revision=revision)).size or 0
    except (HfHubHTTPError, HFValidationError):
        raise
    except Exception:  # of whichever HTTP library the client's version is built on
        return 0


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """One sentence for whatever goes wrong between here and the Hub."""
    try:
        yield
    except TorchcapsError:
        raise
    except Exception as error:  # the client's own kinds, and those of the HTTP library that its version is built on
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"repository '{repository}' of the Hub cannot be used: {reason}") from error
