"""torchcaps data, torchcaps datasets and torchcaps bench data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from tests.helpers import dataset_files
from torchcaps.cli.data import data_app, datasets_command, short_count
from torchcaps.data import datasets
from torchcaps.errors import TorchcapsError

app = typer.Typer()
app.add_typer(data_app, name="data")
app.command("datasets")(datasets_command)


@pytest.fixture(autouse=True)
def empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> str:
    """Output of the command; its errors are raised."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_datasets_lists_every_record() -> None:
    rows = json.loads(run("datasets", "--json"))
    assert [row["name"] for row in rows] == datasets.names()
    for row in rows:
        assert {"shape", "splits", "class_names", "licence", "citation", "state"} <= set(row)
    text = run("datasets")
    for word in ("mnist", "60M + 10k", "2x48x48", "to fetch", "generated", "images:FOLDER"):
        assert word in text


def test_short_counts() -> None:
    assert [short_count(count) for count in (900, 24_300, 60_000_000)] == ["900", "24.3k", "60M"]


def test_list_shows_where_files_are(tmp_path: Path) -> None:
    dataset_files.write_digits(tmp_path / "own" / "mnist")
    rows = {row["name"]: row for row in json.loads(run("data", "list", "--json"))}
    assert rows["mnist"]["state"] == "here"
    assert rows["mnist"]["folder"] == str(tmp_path / "own" / "mnist")
    assert rows["mnist"]["bytes"] > 0
    assert rows["cifar-10"]["state"] == "to fetch"
    assert "fashion-mnist" in run("data", "list")


def test_verify_reports_wrong_files(tmp_path: Path) -> None:
    dataset_files.write_digits(tmp_path / "own" / "mnist")  # in the right format, but not the originals
    with pytest.raises(TorchcapsError, match="1 of 1 datasets are damaged"):
        run("data", "verify", "mnist")
    with pytest.raises(TorchcapsError, match="damaged"):
        run("data", "verify")
    with pytest.raises(TorchcapsError, match="damaged"):
        run("data", "verify", "cifar-10")
    assert "glyphs is generated" in run("data", "verify", "glyphs")


def test_get_checks_names_before_it_downloads() -> None:
    with pytest.raises(TorchcapsError, match="did you mean 'cifar-10'"):
        run("data", "get", "glyphs", "cifar10")
    assert "glyphs is complete" in run("data", "get", "glyphs")


def test_get_names_files_that_users_must_provide(tmp_path: Path) -> None:
    with pytest.raises(TorchcapsError, match=r"affnist, or use the dataset 'affnist'"):
        run("data", "get", "affnist-official")


def test_preview_is_a_picture_with_every_class(tmp_path: Path) -> None:
    assert run("data", "preview", "glyphs").strip() == "preview-glyphs.png"
    with Image.open(tmp_path / "preview-glyphs.png") as sheet:
        width, height = sheet.size
        assert width > 12 * 56
        assert height > 10 * 56
        assert len(sheet.convert("L").getcolors() or range(999)) > 50
    run("data", "preview", "glyphs", "--split", "test", "--out", "deep/folder/sheet.png")
    assert (tmp_path / "deep" / "folder" / "sheet.png").is_file()


def test_preview_refuses_unknown_names() -> None:
    with pytest.raises(TorchcapsError, match="did you mean 'glyphs'"):
        run("data", "preview", "glyph")
    with pytest.raises(TorchcapsError, match="split of glyphs"):
        run("data", "preview", "glyphs", "--split", "tran")
