"""``torchcaps explain``: its output, files and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from torchcaps.cli.main import main

pytestmark = pytest.mark.process

TRAIN = ["--data", "glyphs", "--train-images", "60", "--test-images", "20", "--steps", "2", "--device", "cpu"]
CAPSNET = ["capsnet", *TRAIN, "--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]

Typed = Callable[..., tuple[int, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run a command in this process, in an empty directory; return its exit code and output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return int(stopped.value.code or 0), " ".join(f"{said.out} {said.err}".split())

    return run


def test_explain_writes_figures_and_a_page(typed: Typed, tmp_path: Path) -> None:
    assert typed("train", *CAPSNET, "--out", "run")[0] == 0
    Image.new("RGB", (50, 30), "white").save(tmp_path / "digit.png")
    code, said = typed("explain", "run", "digit.png", "--only", "couplings,votes", "--out", "seen")
    assert code == 0, said
    assert all(
        words in said
        for words in ("couplings.png", "votes for the class come from", "votes: skipped", "seen/index.html")
    )
    report = json.loads((tmp_path / "seen" / "explain.json").read_text())
    assert report["environment"]["command"] == "torchcaps explain run digit.png --only couplings,votes --out seen"
    assert report["run"] == "run"
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {"couplings.png", "explain.json", "index.html"}

    code, said = typed("explain", "run", "3", "--only", "decoding", "--decoder", "run", "--json")
    assert code == 0, said
    assert json.loads(said)["explanations"]["decoding"]["files"] == ["decoding.png"]
    assert (tmp_path / "run" / "explain" / "decoding.png").is_file(), "beside the run, where no folder is named"

    before = sorted(tmp_path.rglob("*"))
    for arguments, message in (
        (["nowhere"], "nowhere is not a directory, so it is not a run"),
        (["run", "gone.png"], "gone.png is neither a file nor a number"),
        (["run", "1000"], "there is no image 1000: the dataset has images 0 to 999"),
        (["run", "--only", "vote"], "explanation 'vote' is unknown: did you mean 'votes'?"),
        (["run", "--data", "glyph"], "dataset 'glyph' is unknown: did you mean 'glyphs'?"),
        (["run", "--decoder", "nowhere"], "nowhere is not a directory, so it is not a run"),
    ):
        code, said = typed("explain", *arguments)
        assert code == 2
        assert message in said
    assert sorted(tmp_path.rglob("*")) == before, "nothing may be half-written"
