"""Shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.cli import options
from torchcaps.cli.options import complete, complete_list, complete_run, known_names
from torchcaps.models import models
from torchcaps.train import resolve


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(options, "cache_folder", lambda: tmp_path / "torchcaps")
    return tmp_path / "torchcaps" / "names.json"


def test_names_come_from_the_registries_and_are_cached(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(known_names("model")) == set(models.names())
    assert own_cache.is_file()
    monkeypatch.setattr(options, "registered_names", lambda: {"model": ["fresh"]})
    assert set(known_names("model")) == set(models.names()), "from the file: nothing is imported"
    monkeypatch.setattr(options, "source_stamp", lambda: "changed")
    assert known_names("model") == ["fresh"]
    own_cache.write_text("{damaged")
    assert known_names("model") == ["fresh"]
    own_cache.write_text("[]")
    assert known_names("model") == ["fresh"]


def test_completions_start_with_the_typed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "capsnet" in complete("model")("caps")
    assert all(name.startswith("caps") for name in complete("model")("caps"))
    assert complete("dataset")("fash") == ["fashion-mnist"]
    assert complete("dataset")("ima") == ["images:"]
    assert complete("paper")("gu") == ["gu2021"]
    assert complete_list("attack")("fgsm,b") == ["fgsm,bim"]
    assert complete("routing", prefix="routing=")("routing=d")[-1] == "routing=dynamic"
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert complete_run("ru") == ["runs/"]
    assert complete_run("runs/") == ["runs/first/"]
    assert "capsnet-mnist-laptop" in complete_run("caps")
    assert complete_run("nowhere/x") == []


def test_completion_from_a_shell(tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("torchcaps"))
    asked = {"COMP_WORDS": "torchcaps train ar-c", "COMP_CWORD": "2", "_TORCHCAPS_COMPLETE": "complete_bash"}
    done = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True, check=False, timeout=60)
    assert "ar-capsnet" in done.stdout.split()
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # else it looks for the shell that called it
    shown = subprocess.run(
        [program, "--show-completion", "bash"], env=os.environ | named, capture_output=True, text=True, check=False
    )
    assert "_TORCHCAPS_COMPLETE" in shown.stdout


def test_the_backbone_is_changed_in_the_words_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    large = resolve(model="capsnet", data="glyphs", image_shape=(1, 64, 64))
    options.show_backbone(large, quiet=False)
    assert "Change it with --set backbone=none, strided or residual." in capsys.readouterr().out
    options.show_backbone(large, quiet=False, prefix="capsnet:")
    assert "Change it with capsnet:backbone=none, strided or residual." in capsys.readouterr().out
    options.show_backbone(resolve(model="capsnet", data="glyphs"), quiet=False)
    assert capsys.readouterr().out == ""
