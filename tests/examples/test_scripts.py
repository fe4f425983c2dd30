"""Run every script in examples/ with a small budget."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST = 60  # lines
SMALL = ["--data", "glyphs", "--epochs", "1", "--train-images", "100"]
RUNS = {
    "attack.py": (["--images", "6", "--attacks", "fgsm"], "fgsm, epsilon 0.1"),
    "explain.py": (["--image", "3"], "Page: explained"),
    "own_network.py": (["--steps", "25"], "on 100 test images after 25 steps"),
    "train_and_test.py": (SMALL, "on 1,000 images"),
    "tune_routing.py": ([*SMALL, "--trials", "2"], "with {'iterations'"),
    "watch_training.py": (SMALL, "best at step"),
}
PLUGINS = {"my_attack.py", "my_dataset.py", "my_routing.py", "my_squash.py"}  # tests/test_plugins.py trains with them
pytestmark = [pytest.mark.process, pytest.mark.skipif(not EXAMPLES.is_dir(), reason="only a clone has the examples")]


def test_all_are_run_and_short() -> None:
    scripts = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == RUNS.keys() | PLUGINS
    assert max(scripts.values()) < LONGEST


@pytest.mark.parametrize("name", RUNS)
def test_script(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a script in this process, because importing torch again would dominate the time."""
    arguments, said = RUNS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert said in capsys.readouterr().out
