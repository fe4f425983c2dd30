"""Start the service in a separate process, to benchmark it."""

from __future__ import annotations

import contextlib
import os
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
    """A running service: its address, and the wall-clock and CPU time until its first response."""

    address: str
    seconds_to_start: float
    processor_seconds: float | None  # None where the system does not report it


def processor_seconds(process: int) -> float | None:
    """CPU time of a process on all cores. Unlike wall-clock time, it is independent of other work on the machine."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


@contextlib.contextmanager
def running_service(*command: str, path: str = "/health") -> Iterator[RunningService]:
    """Start ``torchcaps COMMAND`` on a free port, wait until it serves the path, and stop it at the end."""
    began = time.perf_counter()
    call = [str(Path(sys.executable).with_name("torchcaps")), *command, "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^\s/]+", process.stdout.readline())
            assert found, "the service did not print its address"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"{found[0]}{path}").raise_for_status()
                    break
                time.sleep(0.02)
            yield RunningService(found[0], time.perf_counter() - began, processor_seconds(process.pid))
        finally:
            process.terminate()
