"""Trainings on a full or read-only disk: a small tmpfs, which needs root."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.killed_training import kill_before
from tests.torture.scenarios import compare_runs, make_run, resume, undisturbed
from tests.torture.victims import FINISHED, REFUSED, Count, Ended, expect, in_process
from torchcaps.train import RunFolder, fit_run

MOUNT_REFUSED = "not tried: a tmpfs cannot be mounted without the rights of root"


class CannotMountError(Exception):
    """Only root may mount a file system."""


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """Mount a tmpfs with these options while the block runs."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        raise CannotMountError(MOUNT_REFUSED)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a file system."""
    try:
        with mounted(folder / "trial", "size=1m"):
            return True
    except CannotMountError:
        return False


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def finished_run(path: Path) -> RunFolder:
    run = make_run(path, "tiny")
    undisturbed(lambda: fit_run(run), path.with_name("said"))
    return run


def expect_sentence(ended: Ended, what: str, count: Count) -> None:
    """The work was refused with one sentence that says what could not be written, and nothing else was printed."""
    if not expect(ended, REFUSED, what, count):
        return
    if "cannot write" in ended.said and "\n" not in ended.said.strip():
        count.refusals += 1
    else:
        count.wrong.append(f"{what}, expected one sentence with 'cannot write', got: {ended.said[-300:]}")


def fill_and_free(folder: Path, times: int, draw: random.Random, count: Count) -> None:
    """Fill the disk to a random degree, train, free it, resume: the weights are those of an undisturbed run."""
    expected, said = finished_run(folder / "undisturbed"), folder / "said"
    needed = sum(path.stat().st_size for path in expected.path.rglob("*") if path.is_file())
    with mounted(folder / "disk", "size=8m") as place:
        for number in range(times):
            run, ballast, disk = make_run(place / f"run-{number}", "tiny"), place / "ballast", os.statvfs(place)
            left = draw.randrange(needed)  # a checkpoint is written beside the old one, so this is never enough
            ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left))
            ended = in_process(lambda run=run: fit_run(run), said)
            expect_sentence(ended, f"{left} bytes left of {needed}", count)
            ballast.unlink()
            resume(run, expected, said, count)
            shutil.rmtree(run.path)


def forbid_and_allow(folder: Path, times: int, draw: random.Random, count: Count) -> None:
    """Kill a run at a random step, resume it on a disk that is now read-only, then on one that is writable again."""
    expected, said = finished_run(folder / "undisturbed"), folder / "said"

    def die(run: RunFolder, step: int) -> None:
        kill_before(step)
        fit_run(run)

    with mounted(folder / "disk", "size=8m") as place:
        for number in range(times):
            run, step = make_run(place / f"run-{number}", "tiny"), draw.randrange(12)
            in_process(lambda run=run, step=step: die(run, step), said)
            remount(place, "ro")
            expect_sentence(in_process(lambda run=run: fit_run(run), said), f"read-only since step {step}", count)
            remount(place, "rw")
            resume(run, expected, said, count)
            shutil.rmtree(run.path)


TENSORBOARD = {"read-only": "ro", "without room for a file": "size=4k,nr_inodes=2", "without room for data": "size=4k"}


def forbid_tensorboard(folder: Path, times: int, draw: random.Random, count: Count) -> None:
    """Only the folder tensorboard/ cannot be written: training ends with the weights of an undisturbed run."""
    expected, said = finished_run(folder / "undisturbed"), folder / "said"
    for number in range(times):
        where = list(TENSORBOARD)[number % len(TENSORBOARD)]
        run = make_run(folder / f"run-{number}", "tiny")
        with mounted(run.path / "tensorboard", TENSORBOARD[where]) as place:
            if where != "read-only":
                (place / "ballast").write_bytes(bytes(4096))
            count.victims += 1
            if expect(in_process(lambda run=run: fit_run(run), said), FINISHED, f"tensorboard/ {where}", count):
                compare_runs(expected, run, count)
