"""Atomic writes, file locks, and safe reading of text, JSON and YAML files."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from torchcaps.errors import TorchcapsError

UNFINISHED = ".tmp"  # suffix of files that are being written
MOST_TEXT = 64 << 20  # bytes of a text file
UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


@contextlib.contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that replaces it when the block succeeds.

    A reader sees the old file or the new one, never a partial one. On failure the temporary file is removed. Errors of
    the operating system (disk full, read-only folder) become a TorchcapsError.
    """
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")
    try:
        make_folder(target.parent)
        yield temporary
        with temporary.open("r+b") as written:  # Windows can sync only writable files
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def file_name(text: str) -> str:
    """Make a text usable in a file name on any system: characters other than letters, digits and dots become dashes.

    >>> file_name("capsnet:routing=uniform"), file_name("images:photos/pets/")
    ('capsnet-routing-uniform', 'images-photos-pets')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-") or "unnamed"


def printable(text: str) -> str:
    r"""Replace characters of a name that act on a terminal or cannot be written: controls, text direction, surrogates.

    >>> printable("red\x1b[31m")
    'red�[31m'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files left by killed processes; no other process may be writing to the folder."""
    for path in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            path.unlink()


def cannot_write(target: Path, error: OSError) -> TorchcapsError:
    """Make the error for a path that could not be written, with the reason from the operating system."""
    reason = error.strerror or str(error)
    return TorchcapsError(f"cannot write {target}: {reason}. Free some space or choose another folder")


def cache_folder() -> Path:
    """Return the cache folder of torchcaps, by the convention of the platform."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "torchcaps"


class TakenError(TorchcapsError):
    """Another process holds a lock."""


@contextlib.contextmanager
def file_lock(path: Path, taken: str = "another process is doing this") -> Iterator[None]:
    """Hold a lock file while the block runs; raise TakenError with the text ``taken`` if another process holds it.

    The operating system releases the lock when the process ends, even if it is killed. On a file system without locks
    the block runs without one.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(make_folder(path.parent) / path.name, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise TakenError(f"{taken}: wait until it ends, or stop it first") from error
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise cannot_write(path, error) from error
    try:
        yield
    finally:
        lock.release()


def make_folder(folder: Path) -> Path:
    """Create a folder and its parents, or raise an error with the reason."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(target: Path, value: Any) -> None:
    """Write a JSON file atomically, with stable formatting."""
    write_text(target, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def write_json_once(target: Path, value: Any) -> bool:
    """Write a JSON file unless it exists, and return whether it was written; one of several concurrent writers wins."""
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        write_json(beside, value)
        os.link(beside, target)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return True


def read_text(source: Path, *, most: int = MOST_TEXT, damaged: str = "strict") -> str:
    """Read a text file of at most ``most`` bytes, or raise an error with the reason.

    ``damaged`` handles invalid UTF-8: "strict" raises an error, "replace" substitutes the bytes.
    """
    if source.exists() and not source.is_file():
        raise TorchcapsError(f"{source} is not a file, so it cannot be read")  # reading a pipe would block forever
    try:
        with source.open("rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise TorchcapsError(f"{source} holds more than {most:,} bytes, more than any file of its kind: refused")
        return content.decode("utf-8", damaged)
    except (OSError, UnicodeDecodeError) as error:
        raise TorchcapsError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def finite_number(text: str) -> float:
    """Parse a float; infinity and NaN raise ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number '{text[:50]}' is not finite")
    return value


def whole_number(text: str) -> int:
    """Parse a decimal integer of at most 64 bits; a larger one could not become a float or an index."""
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"the number '{text[:50]}' does not fit into 64 bits")
    return int(text)


def read_json(source: Path) -> Any:
    """Read a JSON file, or raise an error with the reason."""
    try:
        return json.loads(
            read_text(source), parse_int=whole_number, parse_float=finite_number, parse_constant=finite_number
        )
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or a number out of range
        raise TorchcapsError(f"{source} is not a readable JSON file: {error}") from error


MOST_BYTES = 1 << 20
DEEPEST = 50


class PlainLoader(yaml.SafeLoader):
    """A YAML loader for plain mappings, lists, strings and numbers: no tags, aliases or dates."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias '*{event.anchor}' is not allowed")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"the tag '{event.tag}' is not allowed")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"it is more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_whole(self, node: Any) -> int:
        text = node.value.replace("_", "")
        digits = text.lstrip("+-")
        if ":" in text or (digits.startswith("0") and digits[1:].isdigit()):
            raise yaml.YAMLError(f"'{text[:50]}' is a number in base 60 or 8: write it in base 10, or put it in quotes")
        if digits[:2] in ("0x", "0b"):
            text = str(int(text, 0)) if len(text) <= 67 else text
        return whole_number(text)

    def construct_finite(self, node: Any) -> float:
        if ":" in node.value:
            raise yaml.YAMLError(f"'{node.value[:50]}' is a number in base 60: write it in base 10")
        return finite_number(node.value.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))

    def refuse_date(self, node: Any) -> None:
        raise yaml.YAMLError(f"'{node.value[:50]}' is a date, which no setting is: put it in quotes")


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_whole)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader.construct_finite)
PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.refuse_date)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text; errors name ``source``."""
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number out of range
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"{source} is not readable YAML: {reason}") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML file of plain values."""
    return parse_yaml(read_text(path, most=MOST_BYTES), str(path))
