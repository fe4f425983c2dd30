"""Scenarios that interrupt trainings, a reproduction and downloads, and check the result."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.helpers.killed_training import die_in_the_middle_of_writing
from tests.helpers.small_paper import new_context, small_jobs, small_spec
from tests.torture.victims import FINISHED, STOPPED, Count, expect, in_process, until_done
from torchcaps.data.io.download import File, fetch_files, find_files
from torchcaps.files import UNFINISHED
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.runner import run_jobs
from torchcaps.train import Callback, RunFolder, fit_run, new_run, read_metrics, resolve
from torchcaps.train.checkpoint import read_progress
from torchcaps.train.metrics import MetricRow

SETTINGS = {"data": "glyphs", "train_images": 200, "epochs": 2, "batch_size": 32, "device": "cpu", "save_minutes": 0.0}
SMALL = {"filters": 8, "types": 2, "hidden": [16, 16]}
TRAININGS = {
    "tiny": {"model": "tiny", "learning_rate": 0.01},
    "capsnet": {"model": "capsnet", "options": SMALL},
    "capsnet-l1": {"model": "capsnet-l1", "options": SMALL},
    "ar-capsnet": {"model": "ar-capsnet", "options": SMALL | {"primary_size": 4, "capsule_size": 4}},
}


ENOUGH_WRONG = 20  # then a scenario ends: work that always fails would never be killed often enough
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1")


def make_run(path: Path, name: str, **settings: object) -> RunFolder:
    return new_run(resolve(**{**SETTINGS, **TRAININGS[name], **settings}), path)


def undisturbed(job: Callable[[], object], said: Path) -> float:
    """Seconds that the work takes when nothing disturbs it."""
    began = time.monotonic()
    ended = in_process(job, said)
    if ended.code != FINISHED:
        raise AssertionError(f"an undisturbed process {ended.describe()}")
    return time.monotonic() - began


def resume(run: RunFolder, expected: RunFolder, said: Path, count: Count) -> None:
    """Let a disturbed run finish, and compare it to the undisturbed one."""
    count.victims += 1
    if expect(in_process(lambda: fit_run(run), said), FINISHED, f"{run.path.name}, resumed", count):
        compare_runs(expected, run, count)


def compare_runs(expected: RunFolder, found: RunFolder, count: Count) -> None:
    """Weights to the bit, metrics line by line, and nothing half written."""
    for file in ("last", "best"):
        one, other = load_file(getattr(expected, file)), load_file(getattr(found, file))
        if one.keys() != other.keys() or not all(torch.equal(one[name], other[name]) for name in one):
            count.wrong.append(f"{found.path.name}: {file} differs from the undisturbed run")
    lines = [
        [(line.step, line.split, line.loss, line.accuracy) for line in read_metrics(run.metrics_file)]
        for run in (expected, found)
    ]
    if lines[0] != lines[1]:
        count.wrong.append(f"{found.path.name}: metrics differ from the undisturbed run")
    count.wrong += [f"{path.name} was left half written" for path in found.path.rglob(f".*{UNFINISHED}")]


def kill_trainings(folder: Path, kills: int, draw: random.Random, count: Count) -> None:
    """SIGKILL at random moments: every training is killed up to ten times before it may finish."""
    said, seconds = folder / "said", dict[str, float]()
    while count.kills < kills and len(count.wrong) < ENOUGH_WRONG:
        name = draw.choice(list(TRAININGS))
        if name not in seconds:
            seconds[name] = undisturbed(lambda name=name: fit_run(make_run(folder / name, name)), said)
        run = make_run(folder / f"{name}-{count.victims}", name)
        until_done(lambda run=run: fit_run(run), said, seconds[name], min(10, kills - count.kills), draw, count)
        compare_runs(RunFolder(folder / name), run, count)


def kill_while_saving(folder: Path, kills: int, draw: random.Random, count: Count) -> None:
    """SIGKILL when a checkpoint is half written."""
    said, expected = folder / "said", make_run(folder / "undisturbed", "tiny")
    undisturbed(lambda: fit_run(expected), said)

    def die(run: RunFolder, number: int) -> None:
        die_in_the_middle_of_writing(number)
        fit_run(run)

    while count.kills < kills and len(count.wrong) < ENOUGH_WRONG:
        run = make_run(folder / f"run-{count.victims}", "tiny")
        # A run writes 16 files or more: 12 steps and 4 validations. Each kill costs at most 4 of them.
        for _ in range(min(3, kills - count.kills)):
            number = draw.randint(1, 4)
            ended = in_process(lambda run=run, number=number: die(run, number), said)
            expect(ended, -signal.SIGKILL, f"killed while it wrote file {number}", count)
            count.kills += 1
            if not list(run.path.rglob(f".*{UNFINISHED}")):
                count.wrong.append(f"{run.path.name}: the kill did not come in the middle of writing a checkpoint")
        resume(run, expected, said, count)


class SendSignal(Callback):
    """Sends a signal to its own process after a given step."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_step(self, line: MetricRow) -> None:
        if line.step == self.step:
            os.kill(os.getpid(), self.number)


def ask_to_stop(folder: Path, times: int, draw: random.Random, count: Count) -> None:
    """Send two signals that ask to stop, ``times`` times: the run finishes its step, saves it and stops.

    Saving every 60 minutes, a run of seconds has no other checkpoint of that step unless it was validated there.
    """
    said, expected = folder / "said", make_run(folder / "undisturbed", "tiny", save_minutes=60.0)
    undisturbed(lambda: fit_run(expected), said)
    for stop in range(2 * times):
        name, step = SIGNALS[stop % len(SIGNALS)], draw.randint(1, 11)
        run = make_run(folder / f"run-{stop}", "tiny", save_minutes=60.0)
        watch = SendSignal(getattr(signal, name), step)
        ended = in_process(lambda run=run, watch=watch: fit_run(run, callbacks=[watch]), said)
        count.stops += 1
        if expect(ended, STOPPED, f"{name} after step {step}", count):
            saved = read_progress(run.last).step if run.last.is_file() else 0
            if saved != step:
                count.wrong.append(f"{name} after step {step}: the checkpoint is that of step {saved}")
        resume(run, expected, said, count)


def reproduce(folder: Path) -> None:
    jobs = small_jobs(spec=small_spec(epochs=2))
    run_jobs(jobs, new_context(folder, jobs))


def results_of(folder: Path) -> dict[str, float | None]:
    return {f"{each.table} {each.cell} {each.seed}": each.value for each in find_results(folder / "results")}


def kill_reproductions(folder: Path, kills: int, draw: random.Random, count: Count) -> None:
    """A table of cells that share trainings: no result may be lost, doubled, changed or half written."""
    calm = folder / "calm"
    seconds = undisturbed(lambda: reproduce(calm), folder / "said")
    while count.kills < kills and len(count.wrong) < ENOUGH_WRONG:
        own = folder / f"killed-{count.victims}"
        most = min(10, kills - count.kills)
        until_done(lambda own=own: reproduce(own), folder / "said", seconds, most, draw, count)
        if results_of(own) != results_of(calm):
            count.wrong.append(f"{own.name}: results differ from the undisturbed ones")
        runs = [sorted(path.name for path in (each / "runs").iterdir() if path.is_dir()) for each in (calm, own)]
        if runs[0] != runs[1]:
            count.wrong.append(f"{own.name}: a training was lost or doubled")
        for run in (path for path in (own / "runs").iterdir() if (path / "config.yaml").is_file()):
            compare_runs(RunFolder(calm / "runs" / run.name), RunFolder(run), count)
        for path in own.rglob("*.json"):
            if not path.name.startswith("."):
                json.loads(path.read_text())


class SlowSource:
    """Sends dataset files in small chunks, so that a kill interrupts a file."""

    label = "a slow place"

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        for file in files:
            with (folder / file.name).open("wb") as stream:
                content = self.contents[file.name]
                for start in range(0, len(content), 1 << 16):
                    stream.write(content[start : start + (1 << 16)])
                    stream.flush()
                    time.sleep(0.002)


def kill_fetches(folder: Path, kills: int, draw: random.Random, count: Count) -> None:
    """After a kill, a dataset file is correct or absent, and the next download completes."""
    contents = {f"part-{number}": draw.randbytes(1 << 20) for number in range(4)}
    files = [File(name, len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") for name, data in contents.items()]
    os.environ.pop("TORCHCAPS_DATA", None)
    while count.kills < kills and len(count.wrong) < ENOUGH_WRONG:
        os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{count.victims}")
        fetch = lambda: fetch_files("made-up", files, [SlowSource(contents)])  # noqa: E731
        most = min(10, kills - count.kills)
        until_done(fetch, folder / "said", 0.2, most, draw, count)
        place = find_files("made-up", files)
        visible = [] if place is None else [path for path in place.iterdir() if not path.name.startswith(".")]
        if place is None or any(path.read_bytes() != contents[path.name] for path in visible):
            count.wrong.append("a fetched file is missing or damaged")
