"""Processes that are killed, asked to stop, or cannot write."""

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
from torchcaps.train import Interrupted

FINISHED, BROKEN, REFUSED, STOPPED, HUNG = range(5)
LIMIT_SECONDS = 300.0  # work that takes a second or two undisturbed and is not done by then hangs


@dataclass
class Count:
    """What was done to a scenario, and what was found wrong afterwards."""

    victims: int = 0  # pieces of work that were disturbed
    kills: int = 0
    stops: int = 0  # signals that ask a process to save and stop
    refusals: int = 0  # times that a full or read-only disk was met with one sentence
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """Outcome of a process: exit code (negative: a signal), error message and standard error."""

    code: int
    said: str
    stderr: str

    def describe(self) -> str:
        names = {FINISHED: "finished", BROKEN: "crashed", REFUSED: "refused", STOPPED: "stopped", HUNG: "hung"}
        how = names.get(self.code) or f"ended by signal {-self.code}"
        return f"{how}: {self.said[-300:] or self.stderr[-300:]}"


def in_process(work: Callable[[], object], said: Path, *, kill_after: float | None = None) -> Ended:
    """Do work in a forked process; kill it after so many seconds, unless it is faster.

    The error message goes to the file ``said``, and standard error to a file beside it.
    """
    stderr = said.with_name(f"{said.name}.stderr")
    for file in (said, stderr):
        file.write_text("")
    pid = os.fork()
    if pid == 0:
        _be_victim(work, said, stderr)
    began, hung = time.monotonic(), False
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        hung = time.monotonic() - began >= LIMIT_SECONDS
        if hung or (kill_after is not None and time.monotonic() - began >= kill_after):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            break
        time.sleep(0.001)
    code = HUNG if hung else os.waitstatus_to_exitcode(status)
    return Ended(code, said.read_text(), stderr.read_text(errors="replace"))


def _be_victim(work: Callable[[], object], said: Path, stderr: Path) -> None:
    code = BROKEN
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, as it should be
        sys.stderr = stderr.open("a", buffering=1)  # pytest has put a file of its own in its place
        os.dup2(sys.stderr.fileno(), 2)
        work()
        code = FINISHED
    except TorchcapsError as error:
        said.write_text(str(error))
        code = REFUSED
    except Interrupted:
        code = STOPPED
    except BaseException:
        said.write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def expect(ended: Ended, code: int, what: str, count: Count) -> bool:
    """Whether a process ended with the expected code and without a traceback; otherwise it is noted as wrong."""
    ok = ended.code == code and "Traceback" not in ended.stderr
    if not ok:
        seen = "a traceback on standard error: " + ended.stderr[-300:] if ended.code == code else ended.describe()
        count.wrong.append(f"{what}, {seen}")
    return ok


def until_done(
    work: Callable[[], object], said: Path, seconds: float, kills: int, draw: random.Random, count: Count
) -> None:
    """Kill the work at up to ``kills`` random moments within its usual time, then let it finish undisturbed."""
    for killed in range(kills + 1):
        after = None if killed == kills else draw.uniform(0, seconds)
        ended = in_process(work, said, kill_after=after)
        if after is None or ended.code != -signal.SIGKILL:
            expect(ended, FINISHED, f"killed {killed} times, then left alone", count)
            break
        count.kills += 1
    count.victims += 1
