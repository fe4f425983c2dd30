"""Ctrl-C, a polite kill, a closed terminal and a scheduler's warning: finish the step, save, then stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

# Slurm sends SIGTERM before it takes a job's machine away, and SIGUSR1 where "--signal=USR1@60" asks for a warning.
# SIGHUP comes when a terminal is closed. Windows has SIGBREAK instead.
NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP", "SIGBREAK")
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
HANG_UP = getattr(signal, "SIGHUP", None)


class Interrupted(KeyboardInterrupt):
    """The run was stopped on request; everything is saved."""


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether somebody asked to stop. A second request stops at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number != HANG_UP:  # some systems send SIGHUP right after SIGTERM
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        yield lambda: False
        return
    # nohup has SIGHUP ignored, and means it.
    heard = [number for number in SIGNALS if number != HANG_UP or signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
