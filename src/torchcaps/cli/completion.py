"""Shell completion for names of models, datasets, routings, attacks, papers and shipped weights.

Reading the registries imports torch, which takes seconds. The names are therefore cached, together with a stamp of the
source files they come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json

SOURCE = Path(__file__).parents[1]
PACKAGES = ("attacks", "data", "data/datasets", "models", "pretrained", "reproduce/specs", "routing")  # that register


def known_names(kind: str) -> list[str]:
    """All names of a kind, from the cache if it is up to date."""
    cache, stamp = cache_folder() / "names.json", source_stamp()
    with contextlib.suppress(TorchcapsError, TypeError, KeyError):
        cached = read_json(cache)
        if cached["mark"] == stamp:
            return list(cached["names"][kind])
    names = registered_names()
    with contextlib.suppress(TorchcapsError):  # a cache that cannot be written only costs time
        write_json(cache, {"mark": stamp, "names": names})
    return names[kind]


def registered_names() -> dict[str, list[str]]:
    """All names of every kind, from the registries."""
    from torchcaps.attacks import attacks
    from torchcaps.data import datasets
    from torchcaps.models import models
    from torchcaps.pretrained import list_pretrained
    from torchcaps.routing import routings

    return {
        "attack": attacks.names(),
        "dataset": [*datasets.names(), "images:"],
        "model": models.names(),
        "paper": [*sorted(path.stem for path in (SOURCE / "reproduce" / "specs").glob("*.yaml")), "all"],
        "routing": routings.names(),
        "weights": [card.name for card in list_pretrained()],
    }


def source_stamp() -> str:
    """Version and newest modification time of the files that may register a name."""
    newest = max(path.stat().st_mtime_ns for package in PACKAGES for path in (SOURCE / package).iterdir())
    return f"{__version__} {newest}"


def complete(kind: str, *, prefix: str = "") -> Callable[[str], list[str]]:
    """A completer for one name of a kind, after a prefix such as ``routing=``."""

    def completions(incomplete: str) -> list[str]:
        return matching((f"{prefix}{name}" for name in known_names(kind)), incomplete)

    return completions


def complete_list(kind: str) -> Callable[[str], list[str]]:
    """A completer for a comma-separated list: it completes the last name."""

    def completions(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        return [f"{given}{comma}{name}" for name in matching(known_names(kind), last)]

    return completions


def complete_run(incomplete: str) -> list[str]:
    """Complete names of shipped weights and directories."""
    typed = Path(incomplete)
    parent = typed if incomplete.endswith(("/", "\\")) else typed.parent
    folders = (f"{path.as_posix()}/" for path in sorted(parent.iterdir()) if path.is_dir()) if parent.is_dir() else ()
    return [*matching(known_names("weights"), incomplete), *matching(folders, incomplete)]


def matching(names: Iterable[str], typed: str) -> list[str]:
    """The names that start with what was typed."""
    return [name for name in names if name.startswith(typed)]
