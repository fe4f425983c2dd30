"""A run killed with SIGKILL at any moment and resumed ends with the same weights, to the bit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tests.train.tiny  # noqa: F401  (registers the model)
from torchcaps.train import RunFolder, fit, new_run, read_lines, resolve

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
}


def make(path: Path, name: str, **more: object) -> RunFolder:
    return new_run(resolve(**SETTINGS | MODELS[name] | more), path)


def train_in_a_process(run: RunFolder, moment: str = "never", number: int = 0, order: str = "pure") -> int:
    command = [sys.executable, "-m", "tests.train.killed", str(run.path), moment, str(number), order]
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
    ],
)
def test_killed_and_resumed_is_bit_identical(tmp_path: Path, name: str, moment: str, number: int) -> None:
    undisturbed, killed = make(tmp_path / "a", name), make(tmp_path / "b", name)
    fit(undisturbed)
    assert train_in_a_process(killed, moment, number) == -signal.SIGKILL
    fit(killed)
    assert same_weights(undisturbed, killed)
    lines = [
        [(line.step, line.split, line.loss, line.accuracy) for line in read_lines(r.metrics_file)]
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
    fit(often)
    fit(rarely)
    assert same_weights(often, rarely)


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    run = make(tmp_path / "a", "tiny")
    fit(run)
    before = run.last.read_bytes(), run.metrics_file.read_bytes()
    fit(run)
    assert (run.last.read_bytes(), run.metrics_file.read_bytes()) == before


def test_seeds_differ(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", "tiny"), make(tmp_path / "b", "tiny", seed=1)
    fit(one)
    fit(other)
    assert not same_weights(one, other)
