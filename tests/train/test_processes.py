"""Training with two processes gives the weights of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.conftest import Command
from tests.train import measure_processes
from tests.train.measure_processes import CLOSE, difference, make, measure
from torchcaps.environment import source_commit
from torchcaps.errors import TorchcapsError
from torchcaps.train import Interrupted, RunFolder, change_settings, fit_run, processes, read_metrics, resolve
from torchcaps.train.checkpoint import read_progress
from torchcaps.train.distributed import World, find_world
from torchcaps.train.sampler import batch_indices, shard_of

pytestmark = pytest.mark.process


@pytest.mark.parametrize("pair", ["capsnet/ddp", "capsnet-l1/ddp", "clipped/fsdp"])
def test_two_processes_end_with_the_weights_of_one(tmp_path: Path, pair: str) -> None:
    """The quick form of ``python -m tests.train.measure_processes``, which tries other pairs."""
    row = measure(pair, tmp_path)
    print(row)
    assert row["largest_difference"] < CLOSE
    alone, together = RunFolder(tmp_path / "alone"), RunFolder(tmp_path / "together")
    expected, found = read_progress(alone.last), read_progress(together.last)
    assert (found.step, found.images, found.validated_at) == (14, 350, 14)
    assert found.best_accuracy == pytest.approx(expected.best_accuracy, abs=0.051)  # one image of 20
    lines = [
        [(line.step, line.split, line.loss) for line in read_metrics(run.metrics_file)] for run in (alone, together)
    ]
    for (step, split, loss), (other_step, other_split, other_loss) in zip(*lines, strict=True):
        assert (step, split) == (other_step, other_split)
        assert loss is None or loss == pytest.approx(other_loss, abs=1e-5)


def test_a_difference_between_processes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (make(tmp_path / name, "capsnet", steps=1) for name in ("one", "other"))
    fit_run(one)
    fit_run(other)
    assert difference(one, other) == 0
    weights = load_file(other.last)
    value = next(value for name, value in weights.items() if name.startswith("model.")).flatten()
    for wrong, gap in ((1.0, pytest.approx(1.0)), (float("nan"), float("inf"))):
        value[0] += wrong
        save_file(weights, other.last)
        assert difference(one, other) == gap

    def refuse(run: RunFolder) -> None:
        raise TorchcapsError("a process was lost")

    monkeypatch.setattr(measure_processes, "fit_run", refuse)
    out = tmp_path / "processes.json"
    assert measure_processes.main(["--pairs", "capsnet/ddp", "capsnet/fsdp", "--out", str(out)]) == 1
    report = json.loads(out.read_text())
    assert [row["error"] for row in report["rows"]] == ["a process was lost"] * 2
    assert report["environment"]["commit"] == source_commit()


def test_batch_statistics_are_those_of_the_whole_batch(tmp_path: Path) -> None:
    """One step: gradients (RMSprop keeps their squares) and running statistics. After more steps weights differ.

    A bias before a batch normalization has no gradient but rounding errors, which RMSprop scales up to whole steps.
    """
    alone, together = (
        make(tmp_path / "a", "ar-capsnet", steps=1),
        make(tmp_path / "b", "ar-capsnet", steps=1, devices=2),
    )
    fit_run(alone)
    fit_run(together)
    first, second = load_file(alone.last), load_file(together.last)
    for name, value in first.items():
        if name.endswith("square_avg"):
            assert float((value.sqrt() - second[name].sqrt()).abs().max()) < 2e-6, name
        if "running" in name:
            assert float((value - second[name]).abs().max()) < 2e-6, name


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    alone, moved = make(tmp_path / "alone", "capsnet"), make(tmp_path / "moved", "capsnet", devices=2, steps=6)
    fit_run(alone)
    assert fit_run(moved).step == 6
    change_settings(moved, devices=1, steps=None)
    assert fit_run(moved).step == 14
    gap = difference(alone, moved)
    print(f"six steps in two processes, eight in one: weights differ by at most {gap:.2e}")
    assert gap < CLOSE


def wait_for_steps(run: RunFolder, steps: int) -> None:
    deadline = time.monotonic() + 60
    while not run.last.is_file() or read_progress(run.last).step < steps:
        assert time.monotonic() < deadline, "training should have begun"
        time.sleep(0.05)


def while_training(run: RunFolder, act: Callable[[list[int]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call ``act`` with the workers' process ids once some steps are saved."""
    pids: list[int] = []
    start = processes.start_workers

    def remembered(*arguments: object) -> object:
        workers = start(*arguments)  # type: ignore[arg-type]
        pids.extend(worker.pid for worker in workers)
        return workers

    monkeypatch.setattr(processes, "start_workers", remembered)
    threading.Thread(target=lambda: (wait_for_steps(run, 3), act(pids)), daemon=True).start()


def test_when_one_is_killed_the_other_stops_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "run", "capsnet", devices=2, epochs=1000, save_minutes=0.0)
    killed_at = 0.0

    def kill(pids: list[int]) -> None:
        nonlocal killed_at
        killed_at = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)

    while_training(run, kill, monkeypatch)
    with pytest.raises(
        TorchcapsError, match=r"process 2 of 2 was killed by SIGKILL, and the others were stopped.*resume"
    ):
        fit_run(run)
    assert time.monotonic() - killed_at < 2 * processes.GRACE_PERIOD
    reached = read_progress(run.last).step
    assert reached >= 3
    change_settings(run, devices=1, steps=reached + 2)
    assert fit_run(run).step == reached + 2


def test_who_asks_one_to_stop_stops_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path / "run", "capsnet", devices=2, epochs=1000, save_minutes=0.0)
    while_training(run, lambda pids: os.kill(pids[1], signal.SIGUSR1), monkeypatch)
    with pytest.raises(Interrupted):
        fit_run(run)
    assert read_progress(run.last).step >= 3


def test_torchrun_and_its_messages(tmp_path: Path) -> None:
    """Started from outside, a process that loses another says so itself."""
    run = make(tmp_path / "run", "capsnet", epochs=1000, save_minutes=0.0)
    workers = processes.start_workers(run, 2)
    wait_for_steps(run, 3)
    workers[0].kill()
    began = time.monotonic()
    said, _ = workers[1].communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert workers[1].returncode == processes.LOST
    assert "process 2 of 2 lost the connection to another process" in said
    workers[0].communicate()


def test_by_command_and_resumed_in_one_process(torchcaps_command: Command) -> None:
    small = ["--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]", "--device", "cpu"]
    images = ["--data", "glyphs", "--train-images", "195", "--test-images", "50", "--batch-size", "29", "--epochs", "1"]
    done = torchcaps_command("train", "capsnet", *images, *small, "--devices", "2", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Run: run") == 1
    refused = torchcaps_command("train", "--resume", "run", "--devices", "1", "--seed", "2")
    assert "a resumed run keeps its settings: leave out --seed" in refused.stderr
    again = torchcaps_command("train", "--resume", "run", "--devices", "1")
    assert again.returncode == 0, again.stderr


def test_a_trouble_is_told_once(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "capsnet", devices=2, learning_rate=1e30)
    with pytest.raises(TorchcapsError, match=r"(became|not finite).* at step \d+"):
        fit_run(run)


def test_each_image_belongs_to_one_process() -> None:
    for count in range(1, 40):
        for ranks in range(1, 9):
            shares = [shard_of(count, rank, ranks) for rank in range(ranks)]
            assert sum(share.counted for share in shares) == pytest.approx(count)
            if count >= ranks:
                seen = [number for share in shares for number in range(count)[share.part]]
                assert seen == list(range(count))
            else:
                assert all(share.part == slice(0, count) for share in shares)
    epoch = [batch_indices(175, 29, 0, step) for step in range(7)]
    seen = [i for batch in epoch for rank in range(2) for i in batch[shard_of(len(batch), rank, 2).part].tolist()]
    assert sorted(seen) == sorted([*range(175), int(epoch[-1][0])]), "the batch of one image is computed by both"


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        ({}, World(2, 1, started=False)),
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}, World(1, 2, started=True)),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}, World(1, 2, started=True)),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, World(2, 1, started=False)),
    ],
)
def test_who_started_the_processes(environment: dict[str, str], world: World) -> None:
    assert find_world(resolve(model="capsnet", data="glyphs", devices=2), environment) == world


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        ({"nodes": 2}, {}, "srun --nodes 2 --ntasks-per-node 1"),
        ({"devices": 3}, {"SLURM_STEP_NUM_TASKS": "2"}, "but torchrun or Slurm started 2"),
        ({}, {"TORCHELASTIC_RUN_ID": "x"}, "variables of torchrun or Slurm are incomplete"),
    ],
)
def test_numbers_that_contradict_each_other(
    settings: dict[str, int], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(TorchcapsError, match=message):
        find_world(resolve(model="capsnet", data="glyphs", **settings), environment)


def test_one_device_cannot_be_shared() -> None:
    code = (
        "from torchcaps.train import resolve; from torchcaps.train.device import make_fabric\n"
        "make_fabric(resolve(model='capsnet', data='glyphs', device='cuda:1'))"
    )
    outside = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | outside, capture_output=True, text=True, check=False
    )
    assert "device 'cuda:1' is a single device, but 2 processes need one each" in done.stderr
