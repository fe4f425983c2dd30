"""A disk that is full, and one that may not be written to: a small tmpfs of our own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.torture.scenarios import compare_runs, make_run
from tests.torture.victims import FINISHED, REFUSED, Count, Ended, in_process
from torchcaps.train import RunFolder, fit

MEGABYTES = 8


def mount(place: Path, *options: str) -> bool:
    """Whether the mount worked: it needs the rights of root."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={MEGABYTES}m", *options]), "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def expect_sentence(ended: Ended, words: str, count: Count) -> None:
    """Either the work was done before the trouble, or one sentence told of it."""
    if ended.code == FINISHED:
        return
    if ended.code != REFUSED or words not in ended.said or "\n" in ended.said.strip():
        count.wrong.append(f"expected one sentence with '{words}', got code {ended.code}: {ended.said[-300:]}")
    count.refusals += 1


@contextlib.contextmanager
def small_disk(folder: Path, name: str, count: Count) -> Iterator[tuple[Path, RunFolder] | None]:
    """A disk of a few megabytes and an undisturbed run beside it; None where nobody may mount one."""
    place = folder / name
    place.mkdir()
    expected = make_run(folder / f"{name}-calm", "tiny")
    fit(expected)
    if not mount(place):
        count.wrong.append("not tried: a tmpfs cannot be mounted without the rights of root")
        yield None
        return
    try:
        yield place, expected
    finally:
        subprocess.run(["umount", str(place)], check=False)


def fill_and_free(folder: Path, times: int, draw: random.Random) -> Count:
    """Fill the disk to a random degree, train, free it, train on: the weights are those of an undisturbed run."""
    count = Count()
    with small_disk(folder, "full", count) as found:
        for number in range(times if found else 0):
            place, expected = found
            run, ballast, disk = make_run(place / f"run-{number}", "tiny"), place / "ballast", os.statvfs(place)
            left = draw.randrange(200_000)  # from nothing to about what the run needs
            ballast.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - left)))
            expect_sentence(in_process(lambda run=run: fit(run), folder / "said"), "cannot write", count)
            ballast.unlink()
            finish(run, expected, folder, count)
            shutil.rmtree(run.path)
    return count


def forbid_and_allow(folder: Path, times: int) -> Count:
    """Make the disk read-only in the middle of a run, then writable again."""
    count = Count()
    with small_disk(folder, "locked", count) as found:
        for number in range(times if found else 0):
            place, expected = found
            run = make_run(place / f"run-{number}", "tiny")
            in_process(lambda run=run: fit(run), folder / "said", kill_after=0.2 * number)
            mount_again(place, "ro")
            expect_sentence(in_process(lambda run=run: fit(run), folder / "said"), "cannot write", count)
            mount_again(place, "rw")
            finish(run, expected, folder, count)
    return count


def mount_again(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def finish(run: RunFolder, expected: RunFolder, folder: Path, count: Count) -> None:
    ended = in_process(lambda: fit(run), folder / "said")
    if ended.code != FINISHED:
        count.wrong.append(f"could not go on: {ended.said[-300:]}")
        return
    count.victims += 1
    compare_runs(expected, run, count)
