"""Ctrl-C, a polite kill, a closed terminal and a scheduler's warning: finish the step, save, then stop."""

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

# MERGED Several processes on this machine for one run: started here, watched, and stopped together.
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


FINISHED, REFUSED, LOST, STOPPED = 0, 2, 3, 130  # exit codes of a worker
LOOK_AGAIN = 0.05  # seconds
PATIENCE = 5.0  # seconds for the others to end by themselves once one has failed

Worker = subprocess.Popen[str]


def train_in_processes(run: RunFolder, count: int, should_stop: Callable[[], bool]) -> TrainingProgress:
    """Train a run in ``count`` processes. If one of them ends early, the others end too, and one sentence says why."""
    workers = start_workers(run, count)
    asked, failed, failed_at = False, list[int](), 0.0
    try:
        with stop_requests() as stop:
            while any(worker.poll() is None for worker in workers):
                time.sleep(LOOK_AGAIN)
                if not asked and (stop() or should_stop()):
                    asked = True
                    end_all(workers, subprocess.Popen.terminate)
                if not failed:
                    failed = [n for n, worker in enumerate(workers) if worker.poll() not in (None, FINISHED, STOPPED)]
                    failed_at = time.monotonic()
                elif time.monotonic() - failed_at > PATIENCE:
                    end_all(workers, subprocess.Popen.kill)
    finally:
        end_all(workers, subprocess.Popen.kill)  # only where this process itself was stopped at once
    if all(worker.returncode == FINISHED for worker in workers):
        return read_progress(run.last)
    if all(worker.returncode == STOPPED for worker in workers):
        raise Interrupted
    raise TorchcapsError(why_it_ended(workers, failed, run))


def start_workers(run: RunFolder, count: int) -> list[Worker]:
    """Processes that find each other as torchrun's do; this process stays outside and only watches."""
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
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # a weight without a gradient is not worth a paragraph
    }
    command = [sys.executable, "-m", "torchcaps.train.worker", str(run.path), *map(str, loaded_plugins())]
    return [
        subprocess.Popen(
            command,
            # Only the first one shows bars, by the variable with which rich takes a terminal for a file.
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | ({"TTY_COMPATIBLE": "0"} if rank else {}),
            stdout=subprocess.PIPE,  # where a worker leaves the sentence that it ends with
            text=True,
            process_group=0,  # Ctrl-C reaches this process alone, which then asks the workers
        )
        for rank in range(count)
    ]


def end_all(workers: list[Worker], how: Callable[[Worker], None]) -> None:
    """Ask those that still run to end, or end them."""
    for worker in workers:
        if worker.poll() is None:
            how(worker)


def why_it_ended(workers: list[Worker], failed: list[int], run: RunFolder) -> str:
    """One sentence: that of a worker that refused to go on, else how the one died that was ``failed`` before others."""
    codes = [worker.returncode for worker in workers]
    sentences = [worker.communicate()[0].strip() for worker in workers]
    for wanted in (REFUSED, LOST) if all(codes[number] == LOST for number in failed) else (REFUSED,):
        said = [text for code, text in zip(codes, sentences, strict=True) if code == wanted and text]
        if said:
            return said[0]
    number = next((number for number in failed if codes[number] not in (REFUSED, LOST)), 0)
    code = codes[number]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}, as it says above"
    return (
        f"process {number + 1} of {len(workers)} {how}, and the others were stopped. What was saved is whole: "
        f"go on with torchcaps train --resume {run.path}"
    )
