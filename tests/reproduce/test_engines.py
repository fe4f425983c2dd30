"""Local workers and Slurm jobs give the same results as one process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from torchcaps.errors import TorchcapsError, install_command
from torchcaps.reproduce import engines
from torchcaps.reproduce.engines import default_workers, run_on_engine
from torchcaps.reproduce.jobs import Job, plan_jobs
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.runner import Folders, RunnerContext, failed_results, job_state
from torchcaps.reproduce.spec import parse_spec

pytestmark = pytest.mark.process

SPEC = """
paper: small2026
title: A small paper
authors: Nobody
defaults:
  laptop:
    {data: glyphs, train_images: 400, test_images: 100, batch_size: 32, device: cpu, save_minutes: 0, epochs: EPOCHS}
trainings:
  average: {settings: {model: convnet-avg, options: {filters: 8}}}
  dense: {settings: {model: convnet-fc, options: {filters: 8}}}
tables:
  table1:
    title: Errors
    seeds: {laptop: 2, paper: 2}
    cells:
      average: {row: average, column: error, training: average, measure: test-error}
      average-right: {row: average, column: right, training: average, measure: test-accuracy}
      dense: {row: dense, column: error, training: dense, measure: test-error}
claims: {}
"""
CELLS, TRAININGS = 6, 4


def engine_jobs(epochs: int = 1) -> list[Job]:
    return plan_jobs(parse_spec(SPEC.replace("EPOCHS", str(epochs))), "laptop")


def run(folder: Path, engine: str, workers: int, todo: list[Job] | None = None, **settings: object) -> list[str]:
    """Run all jobs of the table; return the log."""
    todo, said = todo or engine_jobs(), list[str]()
    folders = Folders(folder / "results", folder / "runs")
    context = RunnerContext(
        folders, previous_failures=failed_results(todo, folders.results), log=said.append, **settings
    )  # type: ignore[arg-type]
    run_on_engine(engine, todo, context, workers=workers)
    return said


def values(folder: Path) -> dict[str, float | None]:
    return {f"{each.cell} {each.seed}": each.value for each in find_results(folder / "results")}


def logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted((folder / "runs" / "workers").rglob("*_log.*")))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    run(folder, "local", 1)
    return folder


def check(folder: Path, alone: Path, said: list[str]) -> None:
    assert values(folder) == values(alone), logs(folder)
    assert len(list((folder / "runs").glob("*/result.json"))) == TRAININGS
    assert said[0].startswith("2 workers; their logs are in ")
    assert said[-1].endswith(f"[{CELLS} done, 0 failed, 0 left]")
    assert logs(folder).count(" %\n") == CELLS, "each cell is done by one worker"
    environments = [each.environment for each in find_results(folder / "results")]
    assert {each["threads"] for each in environments} == {1}
    assert {"submitit" in each["command"] for each in environments} == {False}, "the command is what a person typed"


def test_two_local_workers_give_the_results_of_one_process(
    tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_cores", lambda: 2)  # a thread for each, as in the process of the tests
    check(tmp_path, alone, run(tmp_path, "local", 2))


def test_workers_stop_on_request_and_a_later_call_resumes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.reproduce.test_engines import engine_jobs, run\n"
        "run(Path(sys.argv[1]), 'local', 2, engine_jobs(epochs=100))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while len(list((tmp_path / "runs").glob("*/checkpoints/last.safetensors"))) < 2:
        assert time.monotonic() < deadline, "two workers should have begun two trainings"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "Interrupted" in errors
    assert [job_state(job, tmp_path / "results") for job in engine_jobs(epochs=100)] == ["open"] * CELLS
    assert "Traceback" not in logs(tmp_path), "the workers end in peace"


def test_profile_desk_has_one_thread_and_one_worker_per_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(SPEC.replace("EPOCHS", "1").replace("  laptop:", "  desk:"))
    jobs = plan_jobs(spec, "desk", seeds=1)
    monkeypatch.setattr(engines, "_cores", lambda: 2)
    said = list[str]()
    assert default_workers("local", jobs, said.append) == 2
    assert default_workers("local", jobs[:1], said.append) == 1
    assert default_workers("slurm", jobs, said.append) == 1
    assert default_workers("local", engine_jobs(), said.append) == 1
    assert said == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_workers("local", jobs, said.append) == 1
    assert said == [f"one worker on 2 cores; for one worker per core, {install_command('cluster')}"]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(tmp_path, "local", 1, jobs[:1])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [each.environment["threads"] for each in find_results(tmp_path / "results")] == [1]


def test_an_unknown_engine_suggests_the_closest_name(tmp_path: Path) -> None:
    with pytest.raises(TorchcapsError, match="did you mean 'slurm'"):
        run(tmp_path, "slurn", 2)


def test_missing_slurm_commands_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(TorchcapsError, match="engine 'slurm' needs Slurm's commands"):
        run(tmp_path, "slurm", 2)


def slurm_is_missing() -> str:
    """Why Slurm cannot be used here, or nothing."""
    if shutil.which("sinfo") is None:
        return "NO SLURM HERE: its commands are not installed, the slurm engine is NOT tested"
    state = subprocess.run(["sinfo", "--noheader", "--format", "%T"], capture_output=True, text=True, check=False)
    if "idle" not in state.stdout and "mixed" not in state.stdout:
        return f"NO SLURM HERE: no node is idle, the slurm engine is NOT tested {state.stdout}{state.stderr}"
    return ""


@pytest.mark.slurm
def test_two_slurm_jobs_give_the_results_of_one_process(tmp_path: Path, alone: Path) -> None:
    if reason := slurm_is_missing():
        pytest.skip(reason)
    check(tmp_path, alone, run(tmp_path, "slurm", 2))
