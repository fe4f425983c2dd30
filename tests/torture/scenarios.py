"""What is killed: trainings, a reproduction and fetches of data; and what must hold afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.reproduce.small import new_call, small_spec, small_work
from tests.torture.victims import FINISHED, Count, in_process, until_done
from torchcaps.data.verified import File, find, obtain
from torchcaps.files import UNFINISHED
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.runner import work_through
from torchcaps.train import RunFolder, fit, new_run, read_lines, resolve

SETTINGS = {"data": "glyphs", "train_images": 200, "epochs": 2, "batch_size": 32, "device": "cpu", "save_minutes": 0.0}
SMALL = {"filters": 8, "types": 2, "hidden": [16, 16]}
TRAININGS = {
    "tiny": {"model": "tiny", "learning_rate": 0.01},
    "capsnet": {"model": "capsnet", "options": SMALL},
    "capsnet-l1": {"model": "capsnet-l1", "options": SMALL},
    "ar-capsnet": {"model": "ar-capsnet", "options": SMALL | {"primary_size": 4, "capsule_size": 4}},
}


def make_run(path: Path, name: str) -> RunFolder:
    return new_run(resolve(**SETTINGS, **TRAININGS[name]), path)


def timed(work: Callable[[], object], said: Path) -> float:
    """Seconds that the work takes when nobody disturbs it."""
    began = time.monotonic()
    ended = in_process(work, said)
    if ended.code != FINISHED:
        raise AssertionError(f"an undisturbed process ended with {ended.code}: {ended.said}")
    return time.monotonic() - began


def compare_runs(expected: RunFolder, found: RunFolder, count: Count) -> None:
    """Weights to the bit, metrics line by line, and nothing half written."""
    for file in ("last", "best"):
        one, other = load_file(getattr(expected, file)), load_file(getattr(found, file))
        if one.keys() != other.keys() or not all(torch.equal(one[name], other[name]) for name in one):
            count.wrong.append(f"{found.path.name}: {file} differs from the undisturbed run")
    lines = [
        [(line.step, line.split, line.loss, line.accuracy) for line in read_lines(run.metrics_file)]
        for run in (expected, found)
    ]
    if lines[0] != lines[1]:
        count.wrong.append(f"{found.path.name}: metrics differ from the undisturbed run")
    count.wrong += [f"{path.name} was left half written" for path in found.path.rglob(f".*{UNFINISHED}")]


def kill_trainings(folder: Path, kills: int, draw: random.Random) -> Count:
    """Every training is killed up to ten times before it may finish."""
    count, seconds = Count(), dict[str, float]()
    for name in TRAININGS:
        seconds[name] = timed(lambda name=name: fit(make_run(folder / name, name)), folder / "said")
    while count.kills < kills:
        name = draw.choice(list(TRAININGS))
        run = make_run(folder / f"{name}-{count.victims}", name)
        most = min(10, kills - count.kills)
        count.kills += until_done(lambda run=run: fit(run), folder / "said", seconds[name], most, draw)
        count.victims += 1
        compare_runs(RunFolder(folder / name), run, count)
    return count


def reproduce(folder: Path) -> None:
    works = small_work(spec=small_spec(epochs=2))
    work_through(works, new_call(folder, works))


def results_of(folder: Path) -> dict[str, float | None]:
    return {f"{each.table} {each.cell} {each.seed}": each.value for each in find_results(folder / "results")}


def kill_reproductions(folder: Path, kills: int, draw: random.Random) -> Count:
    """A table of cells that share trainings: no result may be lost, doubled, changed or half written."""
    count, calm = Count(), folder / "calm"
    seconds = timed(lambda: reproduce(calm), folder / "said")
    while count.kills < kills:
        own = folder / f"killed-{count.victims}"
        most = min(10, kills - count.kills)
        count.kills += until_done(lambda own=own: reproduce(own), folder / "said", seconds, most, draw)
        count.victims += 1
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
    return count


class SlowSource:
    """Gives the files of a dataset in small pieces, so that a kill comes in the middle of one."""

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


def kill_fetches(folder: Path, kills: int, draw: random.Random) -> Count:
    """A file of a dataset is right or not there; whoever comes next gets all of them."""
    count = Count()
    contents = {f"part-{number}": draw.randbytes(1 << 20) for number in range(4)}
    files = [File(name, len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") for name, data in contents.items()]
    os.environ.pop("TORCHCAPS_DATA", None)
    while count.kills < kills:
        os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{count.victims}")
        fetch = lambda: obtain("made-up", files, [SlowSource(contents)])  # noqa: E731
        most = min(10, kills - count.kills)
        count.kills += until_done(fetch, folder / "said", 0.2, most, draw)
        count.victims += 1
        place = find("made-up", files)
        visible = [] if place is None else [path for path in place.iterdir() if not path.name.startswith(".")]
        if place is None or any(path.read_bytes() != contents[path.name] for path in visible):
            count.wrong.append("a fetched file is missing or damaged")
    return count
