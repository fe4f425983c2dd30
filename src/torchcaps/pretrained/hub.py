"""Models in the format of the Hugging Face Hub: directories that can be saved, loaded, pushed and downloaded.

A directory may come from an untrusted source: every file is checked before it is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchcaps.environment import package_version, without_folders
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.files import make_folder, read_json, write_json, write_text
from torchcaps.models import Model, models
from torchcaps.pretrained.loading import TrainedModel, describe_input, file_hash, load_trained
from torchcaps.pretrained.model_card import LIBRARY, model_card
from torchcaps.train import RunConfig
from torchcaps.train.checkpoint import save_weights
from torchcaps.train.config import MOST_WEIGHTS, PYTHON, validate_config
from torchcaps.train.run_folder import load_model

__all__ = ["from_folder", "from_pretrained", "push_to_hub", "save_pretrained"]

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
MOST_BYTES = {CONFIG: 1 << 20, WEIGHTS: MOST_WEIGHTS}
# Keys of config.json that are not settings of the run.
ABOUT = ("library_name", "torchcaps_version", "preprocessing")


def from_folder(folder: Path) -> Model:
    """Load the model of a local directory in evaluation mode."""
    config = read_config(folder)
    weights = checked_file(folder, WEIGHTS)
    return load_model(config, weights, prefix="")


def read_config(folder: Path) -> RunConfig:
    """Read and validate the config of a directory."""
    path = checked_file(folder, CONFIG)
    values: Any = read_json(path)
    if not isinstance(values, dict) or values.get("library_name") != LIBRARY:
        raise TorchcapsError(f"{path} does not describe a torchcaps model: its library_name should be '{LIBRARY}'")
    return validate_config({key: value for key, value in values.items() if key not in ABOUT})


def checked_file(folder: Path, name: str) -> Path:
    """Return the path of a file; raise an error unless it is a regular file of plausible size inside the directory.

    In the cache of the Hub, and only there, files may be links from ``snapshots/REVISION`` to ``blobs``.
    """
    path = folder / name
    if not path.exists():
        raise TorchcapsError(f"{folder} has no {name}, so it is not a model directory: save_pretrained writes one")
    home, real = folder.resolve(), path.resolve()
    cached = home.parent.name == "snapshots" and home.parents[1].name.startswith("models--")
    # The path of blobs is not resolved again: if it were a link, the real file would be elsewhere.
    allowed = [home, home.parents[1] / "blobs"] if cached else [home]
    if not any(real.is_relative_to(each) for each in allowed):
        raise TorchcapsError(f"{path} is a link out of its directory: replace it with a copy of the file")
    if not real.is_file():
        raise TorchcapsError(f"{path} is not a file")
    check_size(str(path), name, real.stat().st_size)
    return path


def check_size(where: str, name: str, size: int) -> None:
    """Raise an error for a file that is larger than any valid one."""
    if size > MOST_BYTES[name]:
        raise TorchcapsError(f"{where} has {size:,} bytes, more than the {MOST_BYTES[name]:,} that are allowed")


def save_pretrained(source: str | Path | Model, folder: str | Path, *, repository: str | None = None) -> Path:
    """Save a trained model to a directory that :func:`from_pretrained` loads.

    Args:
        source: a run directory, the name of pretrained weights, or a model that ``create_model`` built.
        folder: the directory to write; files with the same names are replaced.
        repository: the name on the Hub, for the model card.
    """
    opened = describe_model(source) if isinstance(source, Model) else load_trained(source)
    trained, target = without_local_paths(opened), make_folder(Path(folder))
    # The config comes last: a directory that has one is complete.
    save_weights(target / WEIGHTS, trained.model, prefix="")
    line = f'torchcaps.from_pretrained("{repository or target.resolve().name}")'
    write_text(target / CARD, model_card(trained, load_with=line, sha256=file_hash(target / WEIGHTS)))
    write_json(target / CONFIG, describe_config(trained.config))
    return target


def describe_model(model: Model) -> TrainedModel:
    """Describe a model that ``create_model`` built and that was trained in Python."""
    if model.built_with is None:
        raise TorchcapsError(
            f"this {type(model).__name__} was not built by torchcaps.create_model with settings that a file can hold, "
            "so from_pretrained could not build it again: build it by name, and a backbone by name too"
        )
    record = models.get(model.built_with["model"])
    values: dict[str, Any] = {
        **model.built_with,
        "data": PYTHON,
        "image_shape": model.image_shape,
        "class_names": model.class_names or tuple(map(str, range(model.classes))),
        "augmentation": "",
        "batch_size": record.recipe.batch_size,
        "loss": record.recipe.loss,
        "reconstruction": record.recipe.reconstruction,
        "reconstruction_weight": record.recipe.reconstruction_weight,
        "optimizer": record.recipe.optimizer,
        "learning_rate": record.recipe.learning_rate,
        "schedule": record.recipe.schedule,
    }
    return TrainedModel(record.name, model, validate_config(values), {}, {})


def without_local_paths(trained: TrainedModel) -> TrainedModel:
    """Remove the local path from the dataset name of a model that was trained on the user's own images."""
    family, colon, rest = trained.config.data.partition(":")
    data = f"{family}{colon}{without_folders(rest)}" if colon else family
    return TrainedModel(**vars(trained) | {"config": trained.config.model_copy(update={"data": data})})


def describe_config(config: RunConfig) -> dict[str, Any]:
    """Return the contents of config.json: every setting of the run, the library and the input."""
    about = {
        "library_name": LIBRARY,
        "torchcaps_version": package_version("torchcaps"),
        "preprocessing": describe_input(config.image_shape),
    }
    return about | config.model_dump(mode="json")


def from_pretrained(source: str | Path, *, revision: str | None = None) -> Model:
    """Load a model from a directory or from a repository of the Hub, in evaluation mode.

    Args:
        source: a directory that :func:`save_pretrained` wrote, or ``owner/name`` on the Hub.
        revision: a branch, tag or commit of the repository; None: the latest.
    """
    if Path(source).is_dir():
        return from_folder(Path(source))
    if str(source).count("/") != 1:
        raise TorchcapsError(f"'{source}' is neither a directory nor a repository of the Hub, such as owner/name")
    return from_folder(download_files(str(source), revision))


def push_to_hub(source: str | Path, repository: str, *, private: bool = False) -> str:
    """Push a trained model to a repository of the Hub, which is created if needed; return its URL.

    Log in with ``hf auth login`` first.
    """
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import HfApi

    api = HfApi(library_name=LIBRARY, library_version=package_version("torchcaps"))
    with tempfile.TemporaryDirectory(prefix="torchcaps-") as folder:
        save_pretrained(source, folder, repository=repository)
        with hub_errors(repository):
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload a torchcaps model")
    return str(address)


def download_files(repository: str, revision: str | None) -> Path:
    """Download config and weights of a repository, after checking their sizes; return the directory in the cache."""
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import hf_hub_download

    for name in (CONFIG, WEIGHTS):
        with hub_errors(repository):
            check_size(f"{name} of {repository}", name, claimed_size(repository, name, revision))
            path = hf_hub_download(repository, name, revision=revision, library_name=LIBRARY)
    return Path(path).parent


def claimed_size(repository: str, name: str, revision: str | None) -> int:
    """Return the size of a file on the Hub; 0 without a network, where only cached files can be used."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return get_hf_file_metadata(hf_hub_url(repository, name, revision=revision)).size or 0
    except (HfHubHTTPError, HFValidationError):
        raise
    except Exception:  # which type depends on the HTTP library of the client
        return 0


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Turn any error of the Hub's client into a TorchcapsError of one sentence."""
    try:
        yield
    except TorchcapsError:
        raise
    except Exception as error:  # types of the client and of its HTTP library
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"repository '{repository}' of the Hub cannot be used: {reason}") from error
