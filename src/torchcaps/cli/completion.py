"""What a shell completes: names of models, datasets, routings, attacks, papers and shipped weights.

The registries import torch, which takes seconds; nobody waits that long for the Tab key. So the names are kept in the
cache folder, beside a mark of the source files they were read from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json

SOURCE = Path(__file__).parents[1]
ROOMS = ("attacks", "data", "models", "pretrained", "reproduce/specs", "routing")  # where names are registered


def known_names(kind: str) -> list[str]:
    """All names of a kind, from the cache where it is fresh."""
    kept, mark = cache_folder() / "names.json", source_mark()
    with contextlib.suppress(TorchcapsError, TypeError, KeyError):
        found = read_json(kept)
        if found["mark"] == mark:
            return list(found["names"][kind])
    names = registered_names()
    with contextlib.suppress(TorchcapsError):  # a home that cannot be written: slow, but it works
        write_json(kept, {"mark": mark, "names": names})
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


def source_mark() -> str:
    """Changes whenever a file that may register a name does."""
    newest = max(path.stat().st_mtime_ns for room in ROOMS for path in (SOURCE / room).iterdir())
    return f"{__version__} {newest}"


def complete(kind: str, *, before: str = "") -> Callable[[str], list[str]]:
    """A function that gives the names which go on with what was typed; each behind ``before``, such as "routing="."""

    def found(incomplete: str) -> list[str]:
        return starting((f"{before}{name}" for name in known_names(kind)), incomplete)

    return found


def complete_list(kind: str) -> Callable[[str], list[str]]:
    """The same for names behind commas: the last one is completed."""

    def found(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        return [f"{given}{comma}{name}" for name in starting(known_names(kind), last)]

    return found


def complete_run(incomplete: str) -> list[str]:
    """Shipped weights, and folders."""
    typed = Path(incomplete)
    parent = typed if incomplete.endswith(("/", "\\")) else typed.parent
    folders = (f"{path.as_posix()}/" for path in sorted(parent.iterdir()) if path.is_dir()) if parent.is_dir() else ()
    return [*starting(known_names("weights"), incomplete), *starting(folders, incomplete)]


def starting(names: Iterable[str], typed: str) -> list[str]:
    """Those that go on with what was typed."""
    return [name for name in names if name.startswith(typed)]
