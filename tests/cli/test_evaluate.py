"""``torchcaps evaluate`` with robustness tests: its output, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from tests.cli.test_explain import Typed, typed  # noqa: F401  (the fixture)

pytestmark = pytest.mark.process
SMALL = ["--data", "glyphs", "--train-images", "200", "--test-images", "60", "--device", "cpu", "--epochs", "2"]
ATTACKED = ["--on", "affnist", "--attack", "fgsm,bim", "--epsilon", "0.05,0.2", "--test-images", "40"]


def test_robustness_end_to_end(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    for name in ("one", "two"):
        assert typed("train", "tiny", *SMALL, "--seed", str(len(name)), "--out", name)[0] == 0
    code, said = typed("evaluate", "one", "two", *ATTACKED, "--out", "both")
    assert code == 0, said
    assert "Robustness: accuracy in %" in said
    assert all(
        word in said for word in ("affine in place", "test images", "fgsm", "bim", "0.05", "0.2", "sanity", "passed")
    )
    assert "28x28 test images of glyphs changed in place" in said
    assert "Written: both/attacks.svg" in said
    report = json.loads((tmp_path / "both" / "evaluation.json").read_text())
    assert [each["run"] for each in report["runs"]] == ["one", "two"]
    assert report["environment"]["command"].startswith("torchcaps evaluate one two --on affnist")
    assert not (tmp_path / "one" / "evaluation").exists()

    code, said = typed(
        "evaluate", "one", "--attack", "transfer,square", "--source", "two", "--test-images", "10", "--json"
    )
    assert code == 0, said
    printed = json.loads(said[said.index("[") :].removesuffix(" one"))
    assert {row["attack"] for row in printed[0]["attacked"]["attacks"]} == {"transfer", "square"}
    assert (tmp_path / "one" / "evaluation" / "attacks.png").is_file(), "beside the run, where no folder is named"
    assert json.loads((tmp_path / "one" / "evaluation" / "evaluation.json").read_text())["runs"] == printed

    before = sorted(tmp_path.rglob("*"))
    for arguments, message in (
        (["one", "--on", "multimnits"], "test 'multimnits' is unknown: did you mean 'multimnist'?"),
        (["one", "--attack", "pdg"], "attack 'pdg' is unknown: did you mean 'pgd'?"),
        (["one", "--attack", "transfer"], "needs another trained run: give it with --source"),
        (["one", "--attack", "fgsm", "--epsilon", "a"], "--epsilon should be a comma-separated list of numbers"),
        (["one", "--attack", "fgsm", "--source", "nowhere"], "nowhere is not a directory"),
        (["one", "--out", "x"], "apply to robustness tests: also pass --on or --attack"),
        (["one", "--on", "viewpoint"], "which glyphs does not separate: train on one of smallnorb-azimuth"),
    ):
        code, said = typed("evaluate", *arguments)
        assert code == 2
        assert message in said
    assert sorted(tmp_path.rglob("*")) == before, "nothing may be half-written"


def test_compare_matches_and_leaves_robustness_out(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    code, said = typed("compare", "tiny", *SMALL, "--match", "0.11", "--no-robustness", "--out", "cmp")
    assert code == 0, said
    assert "Robustness" not in said
    result = json.loads((tmp_path / "cmp" / "tiny-seed0" / "result.json").read_text())
    assert result["stop_at_accuracy"] == 0.11
    assert result["reached"] is (result["validation_accuracy"] >= 0.11)
    assert "stop_at_accuracy: 0.11" in (tmp_path / "cmp" / "tiny-seed0" / "config.yaml").read_text()
    for level, message in (
        ("high", "setting 'stop_at_accuracy' is 'high'"),
        ("1.5", "setting 'stop_at_accuracy' is '1.5'"),
        ("familiar", "the viewpoint test needs a model trained on familiar viewpoints only"),
    ):
        code, said = typed("compare", "tiny", *SMALL, "--match", level, "--out", "other")
        assert code == 2
        assert message in said
    assert not (tmp_path / "other").exists()
