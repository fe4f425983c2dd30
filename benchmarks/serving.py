"""A service in a process of its own, for measuring it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class RunningService:
    """A started service: where it is, its process, and how long it took until it answered."""

    address: str
    process: int
    seconds_to_start: float


@contextlib.contextmanager
def running_service(*command: str) -> Iterator[RunningService]:
    """Start ``torchcaps COMMAND`` on a free port, wait until it answers, and stop it in the end."""
    began = time.perf_counter()
    call = [str(Path(sys.executable).with_name("torchcaps")), *command, "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^\s/]+", process.stdout.readline())
            assert found, "the service did not tell its address"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"{found[0]}/health").raise_for_status()
                    break
                time.sleep(0.02)
            yield RunningService(found[0], process.pid, time.perf_counter() - began)
        finally:
            process.terminate()
