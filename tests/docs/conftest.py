"""Working directory for commands on the pages: trained runs, a digit, images of pets, and no network access."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.helpers.doc_blocks import ROOT
from torchcaps.attacks import attacks
from torchcaps.data import datasets
from torchcaps.layers import nonlinearities, transforms
from torchcaps.losses import losses
from torchcaps.models import models
from torchcaps.plugins import PREFIX
from torchcaps.routing import routings
from torchcaps.train import fit_run, new_run, resolve

RUNS = ("a", "b")  # names of the runs on the pages
SMALL = {"filters": 8, "types": 2, "hidden": [16, 16]}


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory, created once per session."""
    folder = tmp_path_factory.mktemp("furnished")
    settings = resolve(model="capsnet", data="glyphs", options=SMALL, train_images=64, test_images=32, steps=2, seed=0)
    first = folder / "runs" / RUNS[0]
    fit_run(new_run(settings, first))
    for name in RUNS[1:]:
        shutil.copytree(first, folder / "runs" / name)
    draw_digit(folder / "digit.png")
    draw_pets(folder / "pets")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "results" / "gu2021" / "table1", folder / "results" / "gu2021" / "table1")
    return folder


@pytest.fixture
def reader(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the directory, with an empty cache and no network access."""
    place = tmp_path / "reader"
    shutil.copytree(furnished, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "data"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    for registry in (
        attacks,
        datasets,
        losses,
        models,
        nonlinearities,
        routings,
        transforms,
    ):  # registrations made by a page are undone
        monkeypatch.setattr(registry, "_records", dict(registry._records))
    yield place
    for name in [name for name in sys.modules if name.startswith(PREFIX)]:
        del sys.modules[name]


def draw_digit(path: Path) -> None:
    image = Image.new("L", (60, 60))
    ImageDraw.Draw(image).line([(15, 12), (45, 12), (25, 50)], fill=255, width=6)
    image.save(path)


def draw_pets(folder: Path) -> None:
    """Two easily separable classes, as folders and as a CSV file."""
    lines = [("path", "label")]
    for number in range(24):
        for kind, color in (("cat", "orange"), ("dog", "steelblue")):
            image = Image.new("RGB", (40, 36), "white")
            left = 4 + number % 8
            ImageDraw.Draw(image).ellipse([left, 6, left + 20, 26], fill=color)
            path = folder / kind / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
            lines.append((f"{kind}/{number}.png", kind))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
