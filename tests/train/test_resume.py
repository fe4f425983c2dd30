"""A run killed with SIGKILL at any moment and resumed ends with the same weights, to the bit."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json
from torchcaps.kernels import autotune
from torchcaps.train import Interrupted, RunFolder, change_settings, fit_run, new_run, read_metrics, resolve
from torchcaps.train.checkpoint import read_progress

pytestmark = pytest.mark.process

PER_EPOCH = 6  # 180 images for training in batches of 32
SETTINGS = {
    "data": "glyphs",
    "train_images": 200,
    "epochs": 2,
    "batch_size": 32,
    "save_minutes": 0.0,
    "augmentation": "shift=2",
    "device": "cpu",
}
MODELS = {
    "tiny": {"model": "tiny", "learning_rate": 0.01},  # has dropout
    "capsnet": {"model": "capsnet", "options": {"filters": 8, "types": 2, "hidden": [16, 16]}},
    "rmsprop": {"model": "tiny", "optimizer": "rmsprop", "schedule": "exponential:0.9:5"},
    "muon": {"model": "capsnet", "options": {"filters": 8, "types": 2, "hidden": [16, 16]}, "optimizer": "muon"},
    "one-cycle": {"model": "tiny", "schedule": "one-cycle:0.02:0.2", "clip_norm": 0.5, "weight_decay": 0.01},
}


def make(path: Path, name: str, **more: object) -> RunFolder:
    return new_run(resolve(**SETTINGS | MODELS[name] | more), path)


def train_in_a_process(run: RunFolder, moment: str = "never", number: int = 0, order: str = "pure") -> int:
    command = [sys.executable, "-m", "tests.helpers.killed_training", str(run.path), moment, str(number), order]
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode


def same_weights(one: RunFolder, other: RunFolder) -> bool:
    return all(
        first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
        for first, second in (
            (load_file(one.last), load_file(other.last)),
            (load_file(one.best), load_file(other.best)),
        )
    )


@pytest.mark.parametrize(
    ("name", "moment", "number"),
    [
        ("tiny", "step", 2),  # in the middle of an epoch
        ("tiny", "step", PER_EPOCH),  # at an epoch's end
        ("tiny", "validation", 1),
        ("tiny", "between", 0),
        ("tiny", "writing", 4),
        ("capsnet", "step", 3),
        ("rmsprop", "step", 8),
        ("muon", "step", 8),
        ("one-cycle", "step", 5),
    ],
)
def test_killed_and_resumed_is_bit_identical(tmp_path: Path, name: str, moment: str, number: int) -> None:
    undisturbed, killed = make(tmp_path / "a", name), make(tmp_path / "b", name)
    fit_run(undisturbed)
    assert train_in_a_process(killed, moment, number) == -signal.SIGKILL
    fit_run(killed)
    assert same_weights(undisturbed, killed)
    lines = [
        [(line.step, line.split, line.loss, line.accuracy) for line in read_metrics(r.metrics_file)]
        for r in (undisturbed, killed)
    ]
    assert lines[0] == lines[1]


def test_a_stateful_order_would_be_caught(tmp_path: Path) -> None:
    undisturbed, killed = make(tmp_path / "a", "tiny"), make(tmp_path / "b", "tiny")
    assert train_in_a_process(undisturbed, order="stateful") == 0
    assert train_in_a_process(killed, "step", 2, "stateful") == -signal.SIGKILL
    assert train_in_a_process(killed, order="stateful") == 0
    assert not same_weights(undisturbed, killed)


def test_saving_rarely_or_often_gives_the_same_weights(tmp_path: Path) -> None:
    often, rarely = make(tmp_path / "a", "tiny"), make(tmp_path / "b", "tiny", save_minutes=60.0)
    fit_run(often)
    fit_run(rarely)
    assert same_weights(often, rarely)


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    run = make(tmp_path / "a", "tiny")
    fit_run(run)
    before = run.last.read_bytes(), run.metrics_file.read_bytes()
    fit_run(run)
    assert (run.last.read_bytes(), run.metrics_file.read_bytes()) == before


def test_seeds_differ(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", "tiny"), make(tmp_path / "b", "tiny", seed=1)
    fit_run(one)
    fit_run(other)
    assert not same_weights(one, other)


def stop_after(run: RunFolder, steps: int) -> None:
    calls = itertools.count(1)
    with pytest.raises(Interrupted):
        fit_run(run, should_stop=lambda: next(calls) == steps)


def test_a_checkpoint_beyond_the_last_step_ends_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = make(tmp_path / "run", "tiny")
    stop_after(run, 5)
    change_settings(run, steps=4)
    assert fit_run(run, should_stop=lambda: True).step == 5
    assert "at step 5, past the 4 steps" in caplog.text
    assert run.best.is_file()


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "tiny")
    refused: list[str] = []

    def resume_again() -> bool:
        with pytest.raises(TorchcapsError, match="is being trained by another process") as caught:
            fit_run(run)
        refused.append(str(caught.value))
        return len(refused) == 2

    with pytest.raises(Interrupted):
        fit_run(run, should_stop=resume_again)
    assert fit_run(run).step == 2 * PER_EPOCH, "the lock ends with the training"


def test_settings_of_a_run_under_way_stay_as_they_are(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "tiny")
    before = run.config_file.read_bytes()

    def move() -> bool:
        with pytest.raises(TorchcapsError, match="is being trained by another process"):
            change_settings(run, device="auto")
        return True

    with pytest.raises(Interrupted):
        fit_run(run, should_stop=move)
    assert run.config_file.read_bytes() == before


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_saves_the_run(tmp_path: Path, ignored: bool) -> None:
    """SIGHUP stops a training as SIGTERM does, unless nohup has it ignored."""
    run, before = make(tmp_path / "run", "tiny"), signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.default_int_handler)

    def hang_up() -> bool:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)  # a hang-up is no second request
        return False

    try:
        if ignored:
            assert fit_run(run, should_stop=hang_up).step == 2 * PER_EPOCH
        else:
            with pytest.raises(Interrupted):
                fit_run(run, should_stop=hang_up)
            assert read_progress(run.last).step in (1, 2)
    finally:
        signal.signal(signal.SIGHUP, before)


SPECTRAL = {"model": "capsnet", "options": {"filters": 16, "types": 4, "hidden": [16, 16]}}


def flip_measurements() -> None:
    """Replace the measured convolution forms by those that another machine might measure."""
    for file in (cache_folder() / "convolutions").glob("*/*.json"):
        found = read_json(file)
        seconds = found["seconds"]
        faster = autotune.wins(seconds)
        found["seconds"] = {"pytorch": 1.0, "spectral": 2.0} if faster else {"pytorch": 2.0, "spectral": 1.0}
        write_json(file, found)
    autotune.form_is_faster.cache_clear()


def test_a_resumed_run_keeps_the_forms_of_its_convolutions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    autotune.form_is_faster.cache_clear()
    monkeypatch.setitem(MODELS, "spectral", SPECTRAL)
    undisturbed, resumed, anew = (make(tmp_path / name, "spectral") for name in ("a", "b", "c"))
    fit_run(undisturbed)
    stop_after(resumed, 8)
    flip_measurements()
    fit_run(resumed)
    assert same_weights(undisturbed, resumed)
    recorded = read_json(resumed.environment_file)["training"]
    assert recorded["threads"] == 1
    assert {name.split()[-1] for name in recorded["convolutions"]} == {"training", "inference"}
    fit_run(anew)
    assert not same_weights(undisturbed, anew), "the other form has other bits, otherwise this tests nothing"
    autotune.form_is_faster.cache_clear()


def test_a_resume_with_other_threads_says_that_bits_will_differ(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make(tmp_path / "run", "tiny")
    stop_after(run, 2)
    assert not caplog.records
    torch.set_num_threads(2)
    try:
        stop_after(run, 2)
    finally:
        torch.set_num_threads(1)
    assert "threads 1 before, 2 now" in caplog.text
    assert "last bits" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", '{"training": 3}', '{"training": {"convolutions": {"x": 1}}}'])
def test_a_damaged_record_of_forms_is_made_anew(tmp_path: Path, content: str) -> None:
    run = make(tmp_path / "run", "tiny")
    stop_after(run, 2)
    run.environment_file.write_text(content, encoding="utf-8")
    assert fit_run(run).step == 2 * PER_EPOCH
    assert read_json(run.environment_file)["training"]["convolutions"] == {}


def test_a_finished_run_is_extended(tmp_path: Path) -> None:
    from torchcaps.train.run_folder import check_extension

    settings = {"model": "lenet", "data": "glyphs", "train_images": 40, "batch_size": 10, "device": "cpu"}
    run = new_run(resolve(**settings, epochs=1), tmp_path / "run")
    fit_run(run)
    check_extension(run, epochs=2)
    change_settings(run, epochs=2)
    assert fit_run(run).step == 8
    with pytest.raises(TorchcapsError, match="has 2 epochs: it can be extended, not shortened"):
        check_extension(run, epochs=1)
    cycle = new_run(resolve(**settings, schedule="one-cycle:0.01:0.1"), tmp_path / "cycle")
    with pytest.raises(TorchcapsError, match="depends on the length of the training, so the run cannot be extended"):
        check_extension(cycle, epochs=9)
