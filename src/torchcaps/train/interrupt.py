"""Ctrl-C, a polite kill and a scheduler's warning: finish the step, save, then stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

# Slurm sends SIGTERM before it takes a job's machine away, and SIGUSR1 where "--signal=USR1@60" asks for a warning.
# Windows has SIGBREAK instead.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGBREAK") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """The run was stopped on request; everything is saved."""


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether somebody asked to stop. A second request stops at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
