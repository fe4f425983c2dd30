"""Run jobs in this process, in several processes on this machine, or on a Slurm cluster.

Every worker goes through the same list of jobs in the same folders and takes a lock on what it does. So it does not
matter when a worker starts, how many there are, or whether one is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.timing import num_threads
from torchcaps.errors import TorchcapsError, install_command, unknown_name
from torchcaps.files import write_text
from torchcaps.progress import progress_bar
from torchcaps.reproduce.jobs import THREADS, Job
from torchcaps.reproduce.runner import RunnerContext, current_result, describe_result, run_jobs
from torchcaps.train import Interrupted
from torchcaps.train.processes import stop_requests

ENGINES = ("local", "slurm")
POLL_SECONDS = 2.0  # between two checks for new results
MAX_MINUTES = 366 * 24 * 60  # minutes; submitit's own limit is five of them


def run_on_engine(engine: str, jobs: list[Job], context: RunnerContext, *, workers: int | None = None) -> None:
    """Run jobs with a number of workers; a single local worker is this process.

    By default there is one worker, but one per core on this machine in a profile with one thread per training.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    jobs = [job for job in jobs if not context.is_finished(job)]
    if not jobs:
        return
    threads = THREADS.get(jobs[0].profile)
    if workers is None:
        workers = default_workers(engine, jobs, context.log)
    if engine == "local" and workers == 1:
        with num_threads(threads or torch.get_num_threads()):
            run_jobs(jobs, context)
        return
    # One folder per invocation, with the logs of the workers and the file that makes them stop.
    folder = context.folders.runs / "workers" / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{uuid.uuid4().hex[:4]}"
    stop_file = folder.absolute() / "stop"
    executor = _executor(engine, folder)
    if engine == "local":
        threads = threads or max(1, _cores() // workers)
    context.log(f"{workers} workers; their logs are in {folder}")
    with _ignore_interrupts():
        handles = [
            executor.submit(worker_main, jobs, replace(context, log=print), stop_file, threads, sys.argv)
            for _ in range(workers)
        ]
    watch_workers(jobs, context, lambda: (_any_queued if engine == "slurm" else _any_running)(handles), stop_file)


def default_workers(engine: str, jobs: list[Job], log: Callable[[str], None]) -> int:
    """Return one worker per core for local jobs in a profile with one thread per training, otherwise one."""
    if engine != "local" or jobs[0].profile not in THREADS:
        return 1
    workers = min(len(jobs), _cores())
    if workers > 1 and importlib.util.find_spec("submitit") is None:
        log(f"one worker on {_cores()} cores; for one worker per core, {install_command('cluster')}")
        return 1
    return workers


def worker_main(
    jobs: list[Job], context: RunnerContext, stop_file: Path, threads: int | None, command: list[str]
) -> None:
    """Entry point of a worker. When Slurm announces the time limit, it saves a checkpoint and requeues itself."""
    sys.argv = command  # results record the command of the user
    torch.set_num_threads(threads or int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
    ending = False

    def end_soon(number: int, frame: Any) -> None:
        nonlocal ending
        ending = True

    if hasattr(signal, "SIGUSR2"):  # not on Windows, which has no Slurm either
        signal.signal(signal.SIGUSR2, end_soon)
    run_jobs(jobs, replace(context, stop_requested=lambda: ending or stop_file.exists()))
    if ending and not context.should_stop() and not stop_file.exists():
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True, timeout=60)


def watch_workers(jobs: list[Job], context: RunnerContext, running: Callable[[], bool], stop_file: Path) -> None:
    """Log results until the last worker ends; pass a request to stop on to the workers."""
    left, done, failed = list(jobs), 0, 0
    with progress_bar("cells", len(left)) as advance, stop_requests() as stop:
        alive = True
        while alive:
            time.sleep(POLL_SECONDS)
            alive = running()  # before the last check for results
            for job in [job for job in left if context.is_finished(job)]:
                left.remove(job)
                result = current_result(job, context.folders.results)
                assert result is not None
                failed, done = failed + bool(result.error), done + (not result.error)
                context.log(f"{describe_result(job, result)} [{done} done, {failed} failed, {len(left)} left]")
                advance(1)
            if stop() and not stop_file.exists():
                write_text(stop_file, "")
                context.log("stopping: the workers save their checkpoints")
        if stop():
            raise Interrupted
    if left and not context.should_stop():
        raise TorchcapsError(f"all workers ended, but {len(left)} cells remain: see their logs in {stop_file.parent}")


def _executor(engine: str, folder: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise TorchcapsError(f"several jobs need the package submitit: {install_command('cluster')}") from error
    if engine == "local":
        executor: Any = submitit.LocalExecutor(folder)
        executor.update_parameters(timeout_min=MAX_MINUTES, gpus_per_node=torch.cuda.device_count())
        return executor
    try:
        executor = submitit.SlurmExecutor(folder)
    except RuntimeError as error:
        raise TorchcapsError("engine 'slurm' needs Slurm's commands on this machine: sbatch, srun, squeue") from error
    # Partition, account, time limit and GPUs are set by Slurm's own SBATCH_... variables.
    executor.update_parameters(job_name="torchcaps", time=None, cpus_per_task=1)
    return executor


def _any_running(workers: list[Any]) -> bool:
    return not all(job.done() for job in workers)


def _any_queued(workers: list[Any]) -> bool:
    """Whether a Slurm job is pending or running. Asks squeue: not every cluster has the accounting submitit reads."""
    command = ["squeue", "--noheader", "--format", "%T", "--jobs", ",".join(job.job_id for job in workers)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    # If squeue fails, the jobs may still run, unless it no longer knows their ids.
    return bool(asked.stdout.strip()) or (asked.returncode != 0 and "Invalid job id" not in asked.stderr)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: this process tells its workers to stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
