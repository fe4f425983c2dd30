"""The process that reads the damaged files ends with the program that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest


@pytest.mark.slow  # the first line of progress comes after half a minute
def test_a_killed_program_leaves_no_worker_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "1000000", "--out", str(tmp_path / "fuzz.json")]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    assert program.stderr is not None
    program.stderr.readline()  # of the worker's progress: it has started, and holds the pipe open as long as it runs
    program.kill()
    program.wait()
    worker_ended = threading.Thread(target=program.stderr.read, daemon=True)
    worker_ended.start()
    worker_ended.join(60)
    alive = worker_ended.is_alive()
    if alive:
        os.killpg(program.pid, signal.SIGKILL)
    assert not alive
