"""Every reader of the project that meets files from elsewhere, with a good file for each."""

from __future__ import annotations

import functools
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from tests.data import test_readers
from tests.fuzz.good import (
    CARD,
    CONFIG,
    FILE,
    METRICS,
    RESULT,
    SPEC,
    checkpoint_bytes,
    picture_bytes,
    small_model,
    tar_bytes,
    zip_bytes,
)
from torchcaps.data import images as own_images
from torchcaps.data.cache import cached
from torchcaps.data.sources import copy_at_most, take_from_tar
from torchcaps.data.verified import problem_with
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.plain_yaml import parse_yaml
from torchcaps.pretrained.cards import read_card
from torchcaps.reproduce.results import read_result
from torchcaps.reproduce.spec import read_spec
from torchcaps.train import open_run, read_lines, read_settings
from torchcaps.train.checkpoint import load_checkpoint, load_weights
from torchcaps.train.config import check

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """A reader, the name that its files have, and the bytes of a good one."""

    file: str
    good: bytes
    read: Read
    text: bool = False


def refusing(read: Read) -> Read:
    """For readers that give their answer in words instead of raising."""

    def reader(path: Path) -> object:
        answer = read(path)
        if isinstance(answer, str):
            raise TorchcapsError(answer)
        return answer

    return reader


def from_archive(take: Callable[[Path, Path], None]) -> Read:
    """Sources are asked through the one function that turns whatever they raise into words."""

    def reader(path: Path) -> object:
        from torchcaps.data.verified import _take_from

        class Here:
            label = "here"

            def fetch(self, files: object, folder: Path) -> None:
                take(path, folder)

        tried: list[str] = []
        target = path.parent / "taken"
        target.mkdir(exist_ok=True)
        _take_from(Here(), [FILE], target, tried)  # type: ignore[arg-type]
        raise TorchcapsError("; ".join(tried))  # its checksum is never right

    return reader


def take_from_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive, archive.open(f"package/{FILE.name}") as packed:
        copy_at_most(packed, folder / FILE.name, FILE)


def read_run(path: Path) -> object:
    """A run's settings as they lie in a stranger's folder, up to the model that they describe."""
    return open_run(path.parent).config().build_model()


def read_checked(path: Path) -> object:
    return check(read_settings(path))


def read_packed(path: Path) -> object:
    return problem_with(path, FILE)


def read_kept(path: Path) -> object:
    return cached(path, "something", lambda: {"made": torch.zeros(1)})


@functools.cache
def readers(folder: Path) -> dict[str, Reader]:
    """All of them by name; ``folder`` is for making the good files."""
    checkpoint = checkpoint_bytes(folder)
    found = {f"data {name}": Reader(name, *pair) for name, pair in test_readers.READERS.items()}
    pictures = {
        f"picture {kind.lower()}": Reader(
            f"a.{kind.lower()}",
            picture_bytes(kind),
            refusing(lambda path: own_images.read_picture(path, boundary=path.parent.resolve(), size=8, grey=False)),
        )
        for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
    }
    return (
        found
        | pictures
        | {
            "weights": Reader("w.safetensors", checkpoint, lambda path: load_weights(path, small_model()[0])),
            "checkpoint": Reader("c.safetensors", checkpoint, lambda path: load_checkpoint(path, *small_model())),
            "kept tensors": Reader("k.safetensors", checkpoint, read_kept),
            "settings": Reader(
                "s.yaml", CONFIG.model_dump_json().encode(), lambda p: check(read_settings(p)), text=True
            ),
            "settings of a run": Reader(
                "config.yaml", yaml.safe_dump(CONFIG.model_dump(mode="json")).encode(), read_run, text=True
            ),
            "option": Reader("o.txt", b"[1, 2.5, word]", lambda p: parse_yaml(_latin(p), "an option"), text=True),
            "json": Reader("j.json", json.dumps(RESULT).encode(), read_json, text=True),
            "result": Reader("r.json", json.dumps(RESULT).encode(), read_result, text=True),
            "card": Reader("card.json", json.dumps(CARD).encode(), read_card, text=True),
            "spec": Reader("spec.yaml", SPEC.encode(), lambda path: read_spec(_latin(path)), text=True),
            "metrics": Reader("metrics.csv", METRICS.encode(), read_lines, text=True),
            "table of pictures": Reader(
                "t.csv", b"path,label\na.png,cat\nb.png,dog\n", own_images.list_table, text=True
            ),
            "verified gz": Reader(
                "inside.bin.gz", gzip.compress(bytes(600)), refusing(lambda p: problem_with(p, FILE))
            ),
            "tar": Reader(
                "a.tgz",
                tar_bytes(),
                from_archive(lambda p, to: take_from_tar(io.BytesIO(p.read_bytes()), "package", [FILE], to)),
            ),
            "zip": Reader("a.whl", zip_bytes(), from_archive(take_from_zip)),
        }
    )


def _latin(path: Path) -> str:
    return path.read_bytes().decode("latin-1")
