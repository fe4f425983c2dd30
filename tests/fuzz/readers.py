"""Every reader of untrusted files, with a valid file for each."""

from __future__ import annotations

import functools
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
import yaml

from tests.data.io.test_formats import READERS
from tests.fuzz.good import (
    CAPSULES,
    CARD,
    CELL,
    CONFIG,
    ENVIRONMENT,
    FILE,
    METRICS,
    RESULT,
    ROBUSTNESS,
    RUN_RESULT,
    SPEC,
    checkpoint_bytes,
    picture_bytes,
    small_model,
    tar_bytes,
    write_run,
    zip_bytes,
)
from torchcaps.compare.table import COLUMNS, REQUIRED_FIELDS, quick_robustness, robustness_columns, table_cells
from torchcaps.data.io import pictures as own_images
from torchcaps.data.io.cache import cached
from torchcaps.data.io.download import check_file
from torchcaps.data.io.sources import copy_at_most, take_from_tar
from torchcaps.demo.served import load_run_models
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.figures import affine_chart, attack_curves
from torchcaps.files import parse_yaml, read_json
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.pretrained.hub import from_folder, save_pretrained
from torchcaps.pretrained.loading import load_trained_run, read_card
from torchcaps.pretrained.model_card import model_card
from torchcaps.reproduce.figures import table_figures
from torchcaps.reproduce.report import describe_origin
from torchcaps.reproduce.results import gather_results, read_result
from torchcaps.reproduce.runner import run_warnings
from torchcaps.reproduce.spec import load_spec, parse_spec
from torchcaps.reproduce.tables import build_table
from torchcaps.train import config as run_config
from torchcaps.train import load, open_run, read_metrics, read_settings, read_validation_metrics
from torchcaps.train.checkpoint import load_checkpoint, load_weights
from torchcaps.train.config import validate_config

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """A reader, the name that its files have, and the bytes of a good one."""

    file: str
    good: bytes
    read: Read
    text: bool = False


def refusing(read: Read) -> Read:
    """Wrap a reader that returns an error message instead of raising."""

    def reader(path: Path) -> object:
        answer = read(path)
        if isinstance(answer, str):
            raise TorchcapsError(answer)
        return answer

    return reader


def from_archive(take: Callable[[Path, Path], None]) -> Read:
    """Read an archive through the function that converts errors of sources to messages."""

    def reader(path: Path) -> object:
        from torchcaps.data.io.download import _download_from

        class Here:
            label = "here"

            def fetch(self, files: object, folder: Path) -> None:
                take(path, folder)

        tried: list[str] = []
        target = path.parent / "taken"
        target.mkdir(exist_ok=True)
        _download_from(Here(), [FILE], target, tried)  # type: ignore[arg-type]
        raise TorchcapsError("; ".join(tried))  # its checksum is never right

    return reader


def take_from_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive, archive.open(f"package/{FILE.name}") as packed:
        copy_at_most(packed, folder / FILE.name, FILE)


def read_run(path: Path) -> object:
    """Read the settings of an untrusted run, build its model and run it once."""
    # Less than what a machine may have: the limit must be kept, and the campaign must not need that much itself.
    with patch.object(run_config, "MOST_WEIGHTS", 64 << 20), use_kernels("plain"), torch.no_grad():
        model = open_run(path.parent).config().build_model().eval()
        return model(torch.zeros(1, *model.image_shape))


def read_run_result(path: Path) -> object:
    """A run's result as 'serve', 'compare', 'reproduce' and the model card read it."""
    run = open_run(path.parent)
    load_run_models([run.path])
    result = run.result(*REQUIRED_FIELDS)
    list(map(str, table_cells(COLUMNS, [result])))
    card = model_card(load_trained_run(run.path), load_with="x", sha256="x")
    return card, run_warnings({"": run}), json.dumps(result, allow_nan=False)


def read_environment(path: Path) -> object:
    return model_card(load_trained_run(path.parent), load_with="x", sha256="x")


def read_validation(path: Path) -> object:
    lines = read_validation_metrics(path)
    best = max(lines, key=lambda line: line.accuracy)
    return json.dumps([best.accuracy, best.step, lines[-1].images_per_second], allow_nan=False)


def read_robustness(path: Path) -> object:
    found = quick_robustness(open_run(path.parent))
    results = [RUN_RESULT | {"robustness": found}]
    row = table_cells(robustness_columns([results]), results)
    charts = [affine_chart({"x": [found["tests"]["affnist"]]})] if found["tests"].get("affnist") else []
    return row, charts, attack_curves({"x": [found["attacked"]]}) if found["attacked"] else None


def read_cell(path: Path) -> object:
    """A cell's result as 'torchcaps report' reads it."""
    spec = load_spec(path.parts[-3])
    evidence = gather_results(spec, path.parents[2])[0]
    return (
        build_table(evidence, path.parts[-2]),
        table_figures(evidence, path.parts[-2]),
        describe_origin([read_result(path)]),
    )


def read_checked(path: Path) -> object:
    return validate_config(read_settings(path))


def read_packed(path: Path) -> object:
    return check_file(path, FILE)


def read_kept(path: Path) -> object:
    return cached(path, "something", lambda: {"made": torch.zeros(1)})


@functools.cache
def readers(folder: Path) -> dict[str, Reader]:
    """All readers by name; valid files are created in ``folder``."""
    checkpoint = checkpoint_bytes(folder)
    cell = folder / "gu2021" / "table1" / f"{CELL}-laptop-seed0.json"
    cell.parent.mkdir(parents=True, exist_ok=True)
    (folder / "capsules").mkdir(exist_ok=True)
    runs = {name: write_run(folder / name) for name in ("result", "environment", "metrics", "robustness", "weights")}
    hubs = {name: save_pretrained(runs["result"], folder / name) for name in ("hub-config", "hub-weights")}
    found = {f"data {name}": Reader(name, *pair) for name, pair in READERS.items()}
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
                "s.yaml", CONFIG.model_dump_json().encode(), lambda p: validate_config(read_settings(p)), text=True
            ),
            "settings of a run": Reader(
                "config.yaml", yaml.safe_dump(CONFIG.model_dump(mode="json")).encode(), read_run, text=True
            ),
            "settings of a capsule network": Reader(
                "capsules/config.yaml", yaml.safe_dump(CAPSULES.model_dump(mode="json")).encode(), read_run, text=True
            ),
            "weights of a run": Reader(
                "weights/checkpoints/best.safetensors",
                (runs["weights"] / "checkpoints/best.safetensors").read_bytes(),
                lambda path: load(path.parents[1]),
            ),
            "result of a run": Reader(
                "result/result.json", json.dumps(RUN_RESULT).encode(), read_run_result, text=True
            ),
            "environment of a run": Reader(
                "environment/environment.json", json.dumps(ENVIRONMENT).encode(), read_environment, text=True
            ),
            "metrics of a run": Reader("metrics/metrics.csv", METRICS.encode(), read_validation, text=True),
            "robustness of a run": Reader(
                "robustness/robustness.json", json.dumps(ROBUSTNESS).encode(), read_robustness, text=True
            ),
            "settings of a hub folder": Reader(
                "hub-config/config.json",
                (hubs["hub-config"] / "config.json").read_bytes(),
                lambda path: from_folder(path.parent),
                text=True,
            ),
            "weights of a hub folder": Reader(
                "hub-weights/model.safetensors",
                (hubs["hub-weights"] / "model.safetensors").read_bytes(),
                lambda path: from_folder(path.parent),
            ),
            "result in a report": Reader(
                str(cell.relative_to(folder)),
                json.dumps(RESULT | {"cell": CELL, "training": CONFIG.model_dump(mode="json")}).encode(),
                read_cell,
                text=True,
            ),
            "option": Reader("o.txt", b"[1, 2.5, word]", lambda p: parse_yaml(_latin(p), "an option"), text=True),
            "json": Reader("j.json", json.dumps(RESULT).encode(), read_json, text=True),
            "result": Reader("r.json", json.dumps(RESULT).encode(), read_result, text=True),
            "card": Reader("card.json", json.dumps(CARD).encode(), read_card, text=True),
            "spec": Reader("spec.yaml", SPEC.encode(), lambda path: parse_spec(_latin(path)), text=True),
            "metrics": Reader("metrics.csv", METRICS.encode(), read_metrics, text=True),
            "table of pictures": Reader(
                "t.csv", b"path,label\na.png,cat\nb.png,dog\n", own_images.list_table, text=True
            ),
            "verified gz": Reader("inside.bin.gz", gzip.compress(bytes(600)), refusing(lambda p: check_file(p, FILE))),
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
