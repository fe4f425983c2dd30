"""To the Hugging Face Hub and back; a folder on this machine needs neither a network nor the extra."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.environment import package_version
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.hub.folder import CONFIG, LIBRARY, WEIGHTS, check_size, from_folder
from torchcaps.hub.save import save_pretrained
from torchcaps.models import Model


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
    return from_folder(fetch(str(source), revision))


def push_to_hub(source: str | Path, repository: str, *, private: bool = False) -> str:
    """Write a run's model, or a shipped one, into a repository of the Hub, which is made if need be; its address.

    Who may write there is settled by ``hf auth login``.
    """
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import HfApi

    api = HfApi(library_name=LIBRARY, library_version=package_version("torchcaps"))
    with tempfile.TemporaryDirectory(prefix="torchcaps-") as folder:
        save_pretrained(source, folder, repository=repository)
        with told(repository):
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model written by torchcaps")
    return str(address)


def fetch(repository: str, revision: str | None) -> Path:
    """The folder in the Hub's cache with a repository's two files, whose sizes were asked for before they came."""
    need_extra("hub", "the Hub", "huggingface_hub")
    from huggingface_hub import hf_hub_download

    for name in (CONFIG, WEIGHTS):
        with told(repository):
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
def told(repository: str) -> Iterator[None]:
    """One sentence for whatever goes wrong between here and the Hub."""
    try:
        yield
    except TorchcapsError:
        raise
    except Exception as error:  # the client's own kinds, and those of the HTTP library that its version is built on
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"repository '{repository}' of the Hub cannot be used: {reason}") from error
