"""The installed command, run as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import torchcaps
from tests.conftest import Command
from torchcaps.cli.main import main
from torchcaps.train.checkpoint import read_progress

SMALL = ["--data", "glyphs", "--train-images", "200", "--test-images", "100", "--batch-size", "32", "--device", "cpu"]
TINY_CAPSNET = ["capsnet", *SMALL, "--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]


def test_train_evaluate_and_load(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command("train", *TINY_CAPSNET, "--epochs", "1", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "test accuracy (100 images)" in done.stdout
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        "config.yaml",
        "environment.json",
        "metrics.csv",
        "checkpoints",
        "result.json",
    }
    evaluated = torchcaps_command("evaluate", "run", "--json")
    result = json.loads(evaluated.stdout)[0]
    assert result["test_accuracy"] == json.loads((tmp_path / "run" / "result.json").read_text())["test_accuracy"]
    model = torchcaps.load(tmp_path / "run")
    assert model.class_names == tuple("0123456789")
    assert model(torch.rand(2, 1, 28, 28)).scores.shape == (2, 10)


def test_a_finished_run_is_extended_by_command(torchcaps_command: Command, tmp_path: Path) -> None:
    short = ["train", "lenet", *SMALL, "--epochs", "1"]
    assert torchcaps_command(*short, "--out", "run").returncode == 0
    longer = torchcaps_command("train", "--resume", "run", "--epochs", "2")
    assert longer.returncode == 0, longer.stderr
    assert "epoch 2.00, validation accuracy" in longer.stderr
    assert "epochs: 2" in (tmp_path / "run" / "config.yaml").read_text()
    refused = torchcaps_command("train", "--resume", "run", "--learning-rate", "0.1")
    assert refused.returncode == 2
    assert "a resumed run keeps its settings: leave out --learning-rate" in refused.stderr


def test_flags_override_the_settings_file(torchcaps_command: Command, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("model: convnet-avg\nepochs: 7\nseed: 3\noptions: {filters: 8}\n")
    done = torchcaps_command("train", "--config", "settings.yaml", *SMALL, "--epochs", "1", "--out", "run")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "epochs: 1" in text
    assert "seed: 3" in text


def test_compare_prints_a_table_and_writes_a_report(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command("compare", "convnet-avg:filters=8", "lenet", *SMALL, "--steps", "2", "--out", "cmp")
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("convnet-avg:filters=8", "lenet", "parameters", "images/s", "test, %"))
    assert "Report: cmp/report.html" in done.stdout
    assert "filters: 8" in (tmp_path / "cmp" / "convnet-avg-filters-8-seed0" / "config.yaml").read_text()
    assert (tmp_path / "cmp" / "report.html").stat().st_size > 10_000


@pytest.mark.slow  # tests/torture has a quick form of it
def test_killed_and_resumed_by_command(torchcaps_command: Command, tmp_path: Path) -> None:
    arguments = ["train", *TINY_CAPSNET, "--epochs", "6", "--save-minutes", "0"]
    program = str(Path(sys.executable).with_name("torchcaps"))
    process = subprocess.Popen([program, *arguments, "--out", "killed"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    saved = tmp_path / "killed" / "checkpoints" / "last.safetensors"
    deadline = time.monotonic() + 60
    while not saved.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    resumed = torchcaps_command("train", "--resume", "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert torchcaps_command(*arguments, "--out", "whole").returncode == 0
    one, other = load_file(saved), load_file(tmp_path / "whole" / "checkpoints" / "last.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_ctrl_c_saves_and_prints_how_to_resume(torchcaps_command: Command, tmp_path: Path, number: int) -> None:
    program = str(Path(sys.executable).with_name("torchcaps"))
    arguments = [program, "train", *TINY_CAPSNET, "--epochs", "2000", "--out", "run"]
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not (metrics.is_file() and len(metrics.read_text()) > 200) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    message = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert "torchcaps train --resume run" in message
    assert "Traceback" not in message
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").is_file()


@pytest.mark.process
def test_a_closed_terminal_saves_the_run(tmp_path: Path) -> None:
    """The terminal is closed: writing to it fails, and SIGHUP is sent."""
    program = str(Path(sys.executable).with_name("torchcaps"))
    arguments = [program, "train", "convnet-avg", *SMALL, "--epochs", "2000", "--save-minutes", "60", "--out", "run"]
    terminal, end = os.openpty()

    def log_in() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under nohup
        os.login_tty(end)

    process = subprocess.Popen(arguments, cwd=tmp_path, preexec_fn=log_in, pass_fds=(end,))
    os.close(end)
    os.set_blocking(terminal, False)
    metrics = tmp_path / "run" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not (metrics.is_file() and len(metrics.read_text()) > 200) and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # nothing to read right now
            os.read(terminal, 1 << 16)
        time.sleep(0.05)
    before = read_progress(tmp_path / "run" / "checkpoints" / "last.safetensors").step
    os.close(terminal)
    assert process.wait(timeout=30) == 130
    assert read_progress(tmp_path / "run" / "checkpoints" / "last.safetensors").step > before


def test_help_is_quick(torchcaps_command: Command) -> None:
    torchcaps_command("--help")  # compiled files are written the first time
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = torchcaps_command("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


@pytest.mark.process
def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, torchcaps; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "capsnett"], "model 'capsnett' is unknown: did you mean 'capsnet'?"),
        (["train", "capsnet", "--data", "mnits"], "dataset 'mnits' is unknown: did you mean 'mnist'?"),
        (["train", "capsnet", "--epoch", "3"], "No such option: --epoch"),
        (["trian"], "No such command 'trian'"),
        (["train"], "no model was given"),
        (["train", *TINY_CAPSNET, "--set", "kernel=20"], "images of 28 pixels are too small"),
        (["train", *TINY_CAPSNET, "--set", "routing"], "should be written NAME=VALUE"),
        (["train", *TINY_CAPSNET, "--set", "channels=3"], "setting of capsnet 'channels' is unknown"),
        (["train", *TINY_CAPSNET, "--out", "/proc/nowhere"], "cannot write /proc/nowhere"),
        (["train", *TINY_CAPSNET, "--out", "full"], "full is not empty: choose another directory"),
        (["train", "--resume", "nowhere"], "nowhere is not a directory, so it is not a run"),
        (["train", "--resume", "full"], "full has no config.yaml, so it is not a run"),
        (["train", "--config", "nowhere.yaml"], "nowhere.yaml cannot be read: No such file or directory"),
        (["train", "--config", "wrong.yaml"], "setting 'epcohs' is unknown: did you mean 'epochs'?"),
        (["evaluate", "nowhere"], "nowhere is not a directory, so it is not a run"),
        (["compare", "capsnet", "capsnet"], "a model is named twice"),
        (["compare", "capsnet", "convnet-afg"], "did you mean 'convnet-avg'?"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    (tmp_path / "wrong.yaml").write_text("model: capsnet\nepcohs: 3\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(tmp_path.rglob("*")) == before, "nothing may be half-written"


def test_a_damaged_checkpoint_is_refused(torchcaps_command: Command, tmp_path: Path) -> None:
    assert torchcaps_command("train", *TINY_CAPSNET, "--steps", "2", "--out", "run").returncode == 0
    for name in ("best", "last"):
        path = tmp_path / "run" / "checkpoints" / f"{name}.safetensors"
        os.truncate(path, path.stat().st_size - 10)
    for arguments in (["evaluate", "run"], ["train", "--resume", "run"]):
        done = torchcaps_command(*arguments)
        assert done.returncode == 2
        assert "damaged or truncated" in " ".join(done.stderr.split())


def run_unread(*arguments: str, folder: Path, errors: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command with a closed standard output; standard error goes to the same pipe, or is captured."""
    reader, writer = os.pipe()
    os.close(reader)
    program = str(Path(sys.executable).with_name("torchcaps"))
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=folder,
            stdout=writer,
            stderr=errors or writer,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)


@pytest.mark.process
def test_a_closed_pipe_does_not_stop_training(tmp_path: Path) -> None:
    """As with ``torchcaps train ... 2>&1 | head -1``: nobody reads on, and the run is finished all the same."""
    settings = [*SMALL, "--steps", "2", "--set", "filters=8", "--out", "run"]
    assert run_unread("train", "convnet-avg", *settings, folder=tmp_path).returncode == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["test_images"] == 100


@pytest.mark.process
def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    ended = run_unread("routings", folder=tmp_path, errors=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (0, "")
