"""``torchcaps explain``, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from tests.conftest import Command

TRAIN = ["--data", "glyphs", "--train-images", "60", "--test-images", "20", "--steps", "2", "--device", "cpu"]
CAPSNET = ["capsnet", *TRAIN, "--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]


def test_explain_writes_figures_and_a_page(torchcaps_command: Command, tmp_path: Path) -> None:
    assert torchcaps_command("train", *CAPSNET, "--out", "run").returncode == 0
    Image.new("RGB", (50, 30), "white").save(tmp_path / "digit.png")
    done = torchcaps_command("explain", "run", "digit.png", "--only", "couplings,votes", "--out", "seen")
    assert done.returncode == 0, done.stderr
    assert "couplings.png" in done.stdout
    assert "half of the votes" in done.stdout
    assert "votes: left out" in done.stdout
    assert "Page: seen/index.html" in done.stdout
    report = json.loads((tmp_path / "seen" / "explain.json").read_text())
    assert report["environment"]["command"] == "torchcaps explain run digit.png --only couplings,votes --out seen"
    assert report["run"] == "run"
    again = torchcaps_command("explain", "run", "3", "--only", "decoding", "--decoder", "run", "--json")
    assert json.loads(again.stdout)["explanations"]["decoding"]["files"] == ["decoding.png"]
    assert (tmp_path / "run" / "explain" / "decoding.png").is_file()
    for arguments, message in (
        (["nowhere"], "nowhere is not a folder, so it is not a run"),
        (["run", "gone.png"], "gone.png is no file and no number"),
        (["run", "--only", "vote"], "explanation 'vote' is unknown: did you mean 'votes'?"),
        (["run", "--data", "mnits"], "dataset 'mnits' is unknown: did you mean 'mnist'?"),
    ):
        refused = torchcaps_command("explain", *arguments)
        assert refused.returncode == 2
        assert message in " ".join(refused.stderr.split())
