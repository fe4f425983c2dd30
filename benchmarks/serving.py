"""A service in a process of its own, for measuring it."""

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
    """A started service: where it is, and how long it and the processor took until it answered."""

    address: str
    seconds_to_start: float
    processor_seconds: float | None  # where the system tells it


def processor_seconds(process: int) -> float | None:
    """What a process has used of all cores; other work on the machine does not count, unlike in the time it took."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


@contextlib.contextmanager
def running_service(*command: str, path: str = "/health") -> Iterator[RunningService]:
    """Start ``torchcaps COMMAND`` on a free port, wait until it answers with the path, and stop it in the end."""
    began = time.perf_counter()
    call = [str(Path(sys.executable).with_name("torchcaps")), *command, "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^\s/]+", process.stdout.readline())
            assert found, "the service did not tell its address"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"{found[0]}{path}").raise_for_status()
                    break
                time.sleep(0.02)
            yield RunningService(found[0], time.perf_counter() - began, processor_seconds(process.pid))
        finally:
            process.terminate()
