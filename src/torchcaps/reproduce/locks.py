"""Several runners on one folder, each with work of its own: whoever holds the lock does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from torchcaps.files import make_folder


class TakenError(Exception):
    """Another runner is doing this right now."""


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Nobody else is inside a block with this folder and name; if somebody is, TakenError at once.

    The operating system holds the lock and takes it back when the process ends, however it ends: a killed runner
    leaves nothing behind that would have to be cleared away.
    """
    lock = FileLock(make_folder(folder / ".locks") / f"{name}.lock", blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise TakenError(name) from error
    try:
        yield
    finally:
        lock.release()
