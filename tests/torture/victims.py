"""Processes that do real work and are killed with SIGKILL at a moment that nobody chose."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps.errors import TorchcapsError

FINISHED, REFUSED, BROKEN = 0, 2, 1


@dataclass
class Count:
    """What was done to a scenario, and what was found wrong afterwards."""

    victims: int = 0  # pieces of work that were disturbed
    kills: int = 0
    refusals: int = 0  # times that a full or read-only disk was met with one sentence
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int  # negative: the signal
    said: str


def in_process(work: Callable[[], object], said: Path, *, kill_after: float | None = None) -> Ended:
    """Do work in a forked process; kill it after so many seconds, unless it is faster."""
    pid = os.fork()
    if pid == 0:
        _be_victim(work, said)
    began, status = time.monotonic(), 0
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if kill_after is not None and time.monotonic() - began >= kill_after:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            break
        time.sleep(0.001)
    return Ended(os.waitstatus_to_exitcode(status), said.read_text() if said.is_file() else "")


def _be_victim(work: Callable[[], object], said: Path) -> None:
    code = BROKEN
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = FINISHED
    except TorchcapsError as error:
        said.write_text(str(error))
        code = REFUSED
    except BaseException:
        said.write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(code)


def until_done(work: Callable[[], object], said: Path, seconds: float, kills: int, draw: random.Random) -> int:
    """Kill the work at up to ``kills`` random moments within its usual time, then let it finish; how often it was."""
    for killed in range(kills + 1):
        # The last time nobody disturbs it.
        after = None if killed == kills else draw.uniform(0, seconds)
        ended = in_process(work, said, kill_after=after)
        if ended.code == FINISHED:
            return killed
        if ended.code != -signal.SIGKILL:
            raise AssertionError(f"ended with {ended.code}: {ended.said}")
    raise AssertionError("was never allowed to finish")
