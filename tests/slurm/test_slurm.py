"""Trainings and reproductions as Slurm jobs: several processes, cancelled, requeued and orphaned jobs.

``make test-slurm`` starts a cluster of one node for these tests and stops it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reproduce.test_engines import CELLS, TRAININGS, engine_jobs, logs, run, values
from tests.slurm.cluster import RUNNING, ask
from tests.torture.scenarios import compare_runs
from tests.torture.victims import Count
from tests.train.measure_processes import CLOSE, difference, make
from torchcaps.reproduce.results import find_results
from torchcaps.train import RunFolder, change_settings, fit_run
from torchcaps.train.checkpoint import read_progress

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(not RUNNING, reason="NO SLURM HERE: jobs of a cluster are NOT tested; run 'make test-slurm'"),
]
PROGRAM = str(Path(sys.executable).with_name("torchcaps"))
# What a user submits: it goes on with the run however often it is started. 130: the run was asked to stop.
SCRIPT = """#!/bin/sh
export OMP_NUM_THREADS=1
srun --ntasks=1 {program} train --resume {run} --device cpu
code=$?
echo "ended with $code" >> {run}/../ends
if [ $code -eq 130 ]; then scontrol requeue $SLURM_JOB_ID; fi
"""


def wait_for(what: str, happened: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what} should have happened; the queue: {ask('squeue')}"
        time.sleep(0.2)


def submit(run: RunFolder, *options: str) -> str:
    """Submit a job that trains a run; return its id."""
    script = run.path.parent / "job.sh"
    script.write_text(SCRIPT.format(program=PROGRAM, run=run.path))
    log = run.path.parent / "job.log"
    answer = ask("sbatch", "--parsable", "--requeue", "--open-mode=append", f"--output={log}", *options, str(script))
    assert answer.isdecimal(), answer
    return answer


def in_queue(job: str) -> bool:
    return bool(ask("squeue", "--noheader", "--jobs", job))


def steps_of(run: RunFolder) -> int:
    return read_progress(run.last).step if run.last.is_file() else 0


@pytest.fixture
def long_run(tmp_path: Path) -> RunFolder:
    return make(tmp_path / "run", "capsnet", epochs=25, save_minutes=0.0)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same training in this process, without interruption."""
    run = make(tmp_path_factory.mktemp("calm") / "run", "capsnet", epochs=25, save_minutes=0.0)
    fit_run(run)
    return run


def same(found: RunFolder, expected: RunFolder) -> None:
    count = Count()
    compare_runs(expected, found, count)
    assert count.wrong == []


def test_srun_starts_processes_that_share_a_run(tmp_path: Path) -> None:
    alone = make(tmp_path / "alone", "capsnet")
    fit_run(alone)
    shared = make(tmp_path / "shared", "capsnet")
    command = ["srun", "--nodes=1", "--ntasks-per-node=2", "--kill-on-bad-exit=1", PROGRAM, "train"]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    command += ["--resume", str(shared.path), "--devices", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert difference(alone, shared) < CLOSE
    assert done.stdout.count("Run: ") == 1, "one process speaks for all"


def test_a_job_that_is_warned_saves_and_goes_on_by_itself(long_run: RunFolder, calm: RunFolder) -> None:
    job = submit(long_run)
    wait_for("the first steps", lambda: steps_of(long_run) >= 5)
    ask("scancel", "--signal=USR1", job)  # as Slurm does with --signal=USR1@60 before the time is over
    wait_for("the end", lambda: not in_queue(job))
    assert (long_run.path.parent / "ends").read_text().split("\n")[:2] == ["ended with 130", "ended with 0"]
    same(long_run, calm)


def test_a_job_that_is_preempted_goes_on(long_run: RunFolder, calm: RunFolder) -> None:
    job = submit(long_run)
    wait_for("the first steps", lambda: steps_of(long_run) >= 5)
    reached = steps_of(long_run)
    ask("scontrol", "requeue", job)  # the job is ended by SIGTERM and put back into the queue, as in a preemption
    wait_for("a second start", lambda: "Restarts=1" in ask("scontrol", "show", "job", job))
    ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert steps_of(long_run) >= reached
    wait_for("the end", lambda: not in_queue(job) or "JobState=COMPLETED" in ask("scontrol", "show", "job", job))
    same(long_run, calm)


def test_a_job_that_is_cancelled_is_saved(long_run: RunFolder, calm: RunFolder) -> None:
    job = submit(long_run)
    wait_for("the first steps", lambda: steps_of(long_run) >= 5)
    ask("scancel", job)
    wait_for("the end", lambda: not in_queue(job))
    assert steps_of(long_run) < steps_of(calm)
    fit_run(long_run)
    same(long_run, calm)


def test_a_job_survives_the_daemon_of_its_node(long_run: RunFolder, calm: RunFolder) -> None:
    job = submit(long_run)
    wait_for("the first steps", lambda: steps_of(long_run) >= 5)
    RUNNING[0].kill_node()
    before = steps_of(long_run)
    wait_for("steps without the daemon", lambda: steps_of(long_run) > before)
    RUNNING[0].start_node()
    wait_for("the end", lambda: not in_queue(job))
    same(long_run, calm)
    RUNNING[0].wait_until_idle()


def test_a_grid_loses_nothing_when_the_daemon_is_killed(tmp_path: Path) -> None:
    run(tmp_path / "alone", "local", 1)

    def disturb() -> None:
        began = tmp_path / "jobs" / "runs"
        wait_for("a training", lambda: any(began.glob("*/checkpoints/last.safetensors")))
        RUNNING[0].kill_node()
        time.sleep(2)
        RUNNING[0].start_node()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    run(tmp_path / "jobs", "slurm", 2)
    disturber.join()
    nothing_lost_nothing_twice(tmp_path)
    RUNNING[0].wait_until_idle()


def nothing_lost_nothing_twice(folder: Path) -> None:
    """The jobs give the results of one uninterrupted process."""
    assert values(folder / "jobs") == values(folder / "alone"), logs(folder / "jobs")
    assert len(list(find_results(folder / "jobs" / "results"))) == CELLS
    assert len(list((folder / "jobs" / "runs").glob("*/result.json"))) == TRAININGS
    assert logs(folder / "jobs").count(" %\n") == CELLS, "each cell is done by one worker"


WARNED, PREEMPTED = ("scancel", "--signal=USR2"), ("scontrol", "requeue")


@pytest.mark.parametrize("order", [WARNED, PREEMPTED], ids=["warned of its time limit", "preempted"])
def test_a_job_of_a_grid_is_put_back_and_goes_on(tmp_path: Path, order: tuple[str, str]) -> None:
    """Near its time limit Slurm warns a job by a signal, which here comes early; then it ends and begins again."""
    run(tmp_path / "alone", "local", 1, engine_jobs(epochs=20))
    jobs: list[str] = []

    def disturb() -> None:
        runs = tmp_path / "jobs" / "runs"
        wait_for("a training", lambda: any(runs.glob("*/checkpoints/last.safetensors")))
        jobs.append(next(runs.glob("workers/*/*_submitted.pkl")).name.split("_")[0])
        ask(*order, jobs[0])
        wait_for("a second start", lambda: "Restarts=1" in ask("scontrol", "show", "job", jobs[0]))
        ask("scontrol", "update", f"JobId={jobs[0]}", "StartTime=now")  # else it waits for two minutes

    disturber = threading.Thread(target=disturb)
    disturber.start()
    run(tmp_path / "jobs", "slurm", 1, engine_jobs(epochs=20))
    disturber.join()
    assert "Restarts=1" in ask("scontrol", "show", "job", jobs[0])
    nothing_lost_nothing_twice(tmp_path)


def test_more_machines_than_there_are(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "capsnet")
    change_settings(run, nodes=2)
    done = subprocess.run([PROGRAM, "train", "--resume", str(run.path)], capture_output=True, text=True, check=False)
    assert "srun --nodes 2 --ntasks-per-node 1" in done.stderr
