"""Stop requests by signal, and several training processes on this machine: started, monitored, stopped together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import torch

from torchcaps.errors import TorchcapsError
from torchcaps.plugins import loaded_plugins
from torchcaps.train.checkpoint import TrainingProgress, read_progress
from torchcaps.train.run_folder import RunFolder

# Slurm sends SIGTERM before it ends a job, and SIGUSR1 with "--signal=USR1@60". A closed terminal sends SIGHUP, on
# Windows SIGBREAK.
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP", "SIGBREAK")
SIGNALS = [getattr(signal, name) for name in STOP_SIGNALS if hasattr(signal, name)]
HANG_UP = getattr(signal, "SIGHUP", None)


class Interrupted(KeyboardInterrupt):
    """The run was stopped on request, after a checkpoint was saved."""


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a stop signal was received. A second signal stops at once."""
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested and number != HANG_UP:  # some systems send SIGHUP right after SIGTERM
            raise KeyboardInterrupt
        requested = True

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        yield lambda: False
        return
    # Under nohup, SIGHUP stays ignored.
    handled = [number for number in SIGNALS if number != HANG_UP or signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


FINISHED, REFUSED, LOST, STOPPED = 0, 2, 3, 130  # exit codes of a worker
POLL_INTERVAL = 0.05  # seconds
GRACE_PERIOD = 5.0  # seconds for the others to end by themselves after one has failed

Worker = subprocess.Popen[str]


def train_in_processes(run: RunFolder, count: int, should_stop: Callable[[], bool]) -> TrainingProgress:
    """Train a run in ``count`` processes. If one of them ends early, all end, and the error says why."""
    workers = start_workers(run, count)
    stopping, failed, failed_at = False, list[int](), 0.0
    try:
        with stop_requests() as stop_requested:
            while any(worker.poll() is None for worker in workers):
                time.sleep(POLL_INTERVAL)
                if not stopping and (stop_requested() or should_stop()):
                    stopping = True
                    end_all(workers, subprocess.Popen.terminate)
                if not failed:
                    failed = [n for n, worker in enumerate(workers) if worker.poll() not in (None, FINISHED, STOPPED)]
                    failed_at = time.monotonic()
                elif time.monotonic() - failed_at > GRACE_PERIOD:
                    end_all(workers, subprocess.Popen.kill)
    finally:
        end_all(workers, subprocess.Popen.kill)  # if this process itself was stopped at once
    if all(worker.returncode == FINISHED for worker in workers):
        return read_progress(run.last)
    if all(worker.returncode == STOPPED for worker in workers):
        raise Interrupted
    raise TorchcapsError(describe_failure(workers, failed, run))


def start_workers(run: RunFolder, count: int) -> list[Worker]:
    """Start processes that connect as under torchrun; this process only monitors them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = max(1, torch.get_num_threads() // count)
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "torchcaps",
        "OMP_NUM_THREADS": str(threads),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # hides a long warning about unused parameters
    }
    command = [sys.executable, "-m", "torchcaps.train.worker", str(run.path), *map(str, loaded_plugins())]
    return [
        subprocess.Popen(
            command,
            # Only the main process shows progress bars: TTY_COMPATIBLE=0 turns them off in rich.
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | ({"TTY_COMPATIBLE": "0"} if rank else {}),
            stdout=subprocess.PIPE,  # a worker prints its error here
            text=True,
            process_group=0,  # Ctrl-C reaches only this process, which then stops the workers
        )
        for rank in range(count)
    ]


def end_all(workers: list[Worker], how: Callable[[Worker], None]) -> None:
    """Terminate or kill the workers that still run."""
    for worker in workers:
        if worker.poll() is None:
            how(worker)


def describe_failure(workers: list[Worker], failed: list[int], run: RunFolder) -> str:
    """Return the error of a worker, or else how the first one of ``failed`` ended."""
    codes = [worker.returncode for worker in workers]
    sentences = [worker.communicate()[0].strip() for worker in workers]
    for wanted in (REFUSED, LOST) if all(codes[number] == LOST for number in failed) else (REFUSED,):
        said = [text for code, text in zip(codes, sentences, strict=True) if code == wanted and text]
        if said:
            return said[0]
    number = next((number for number in failed if codes[number] not in (REFUSED, LOST)), 0)
    code = codes[number]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}, see its output above"
    return (
        f"process {number + 1} of {len(workers)} {how}, and the others were stopped. The last checkpoint is "
        f"intact. Resume with: torchcaps train --resume {run.path}"
    )
