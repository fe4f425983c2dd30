"""Runners repeat no work and lose none, even if they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.small_paper import new_context, small_jobs, small_spec
from torchcaps.files import file_lock
from torchcaps.reproduce.jobs import Job
from torchcaps.reproduce.results import CellResult, find_results, read_result
from torchcaps.reproduce.runner import job_state, run_jobs
from torchcaps.train import read_metrics

pytestmark = pytest.mark.process

CELLS, TRAININGS = 6, 4  # of table1: three cells and two trainings, with two seeds each


def run(folder: Path, jobs: list[Job], **settings: object) -> list[str]:
    """Run jobs; return the log."""
    said: list[str] = []
    run_jobs(jobs, new_context(folder, jobs, log=said.append, **settings))
    return said


def start_runner(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.helpers.runner_process", str(folder), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def measurements(folder: Path) -> list[str]:
    return sorted((folder / "runs" / "shared" / "measured.txt").read_text().splitlines())


def weights(folder: Path) -> dict[str, bytes]:
    """The bytes of every checkpoint, by its path."""
    found = (folder / "runs").glob("*/checkpoints/*.safetensors")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.name == "best.safetensors"}


def values(folder: Path) -> dict[str, float | None]:
    return {f"{each.cell} {each.seed}": each.value for each in find_results(folder / "results")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder, small_jobs())
    return folder


def result_of(folder: Path, job: Job) -> CellResult:
    return read_result(job.result_file(folder / "results"))


def test_every_result_records_its_origin(undisturbed: Path) -> None:
    jobs = small_jobs()
    assert [job_state(job, undisturbed / "results") for job in jobs] == ["done"] * CELLS
    result = result_of(undisturbed, jobs[0])
    assert (result.paper, result.table, result.cell, result.seed) == ("small2026", "table1", "mean", 0)
    assert (result.published, result.unit, result.warnings) == (1.5, "weight", ("this means nothing",))
    assert result.selection_split == "validation"
    assert result.training is not None
    assert result.training["learning_rate"] == 0.01
    assert result.training_seconds is not None
    assert 0 < result.training_seconds < 60
    assert result.training_core_seconds is not None
    assert 0 < result.training_core_seconds < 120
    assert result.environment["versions"]["torch"]
    assert result_of(undisturbed, jobs[1]).value == pytest.approx(2 * (result.value or 0))


def test_a_shared_training_runs_once(undisturbed: Path) -> None:
    assert len(weights(undisturbed)) == TRAININGS
    assert len(measurements(undisturbed)) == CELLS


def test_finished_jobs_are_not_repeated(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.suffix in (".json", ".csv")}
    assert run(undisturbed, small_jobs()) == []
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert len(measurements(undisturbed)) == CELLS


def test_a_changed_setting_outdates_a_result(tmp_path: Path) -> None:
    run(tmp_path, small_jobs(cells=["mean"]))
    changed = small_jobs(spec=small_spec(rate=0.02), cells=["mean", "both"])
    results = tmp_path / "results"
    assert [job_state(job, results) for job in changed] == ["open"] * 4
    assert [job_state(job, results) for job in small_jobs(cells=["mean"])] == ["done"] * 2
    run(tmp_path, changed[:1])
    assert job_state(changed[0], results) == "done"
    assert result_of(tmp_path, changed[0]).training["learning_rate"] == 0.02  # type: ignore[index]
    assert len(weights(tmp_path)) == 3, "the earlier runs are kept"


def test_constant_predictions_give_a_warning(tmp_path: Path) -> None:
    jobs = small_jobs(spec=small_spec(rate=1000.0), cells=["mean"])[:1]  # far too high a rate
    run(tmp_path, jobs)
    assert "gives the same answer to every test image" in result_of(tmp_path, jobs[0]).warnings[0]


def test_a_failed_cell_is_recorded_and_the_others_continue(tmp_path: Path) -> None:
    jobs = small_jobs("table2")
    said = run(tmp_path, jobs)
    broken, clumsy, fine = (result_of(tmp_path, job) for job in jobs)
    assert broken.error == "ZeroDivisionError: one of those days"
    assert clumsy.error == "this measure needs a training: name one in the cell of the spec"
    assert fine.error is None
    errors = list((tmp_path / "runs" / "errors").iterdir())
    assert [path.name for path in errors] == ["small2026-table2-broken-laptop-seed0.txt"]
    assert "in always_wrong" in errors[0].read_text()
    assert sum("failed: " in line for line in said) == 2, "each is tried once in a call"
    assert sum("failed: " in line for line in run(tmp_path, jobs)) == 2, "and again in the next"


def test_a_killed_runner_resumes_with_identical_weights(tmp_path: Path, undisturbed: Path) -> None:
    runner = start_runner(tmp_path, 1, 4)
    assert runner.wait(timeout=120) == -signal.SIGKILL
    (checkpoint,) = (tmp_path / "runs").glob("*/checkpoints/last.safetensors")
    (metrics,) = (tmp_path / "runs").glob("*/metrics.csv")
    reached = max(line.step for line in read_metrics(metrics))
    assert reached == 2 * (reached // 2) > 0, "a validation every two steps"
    assert checkpoint.stat().st_size
    assert not (tmp_path / "results" / "small2026").exists()
    run(tmp_path, small_jobs())
    assert weights(tmp_path) == weights(undisturbed)
    assert values(tmp_path) == values(undisturbed)


def test_two_runners_do_each_job_exactly_once(tmp_path: Path, undisturbed: Path) -> None:
    runners = [start_runner(tmp_path, 1) for _ in range(2)]
    outputs = [runner.communicate(timeout=240)[0] for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0], outputs
    assert measurements(tmp_path) == measurements(undisturbed)
    assert weights(tmp_path) == weights(undisturbed)
    assert values(tmp_path) == values(undisturbed)
    for metrics in (tmp_path / "runs").glob("*/metrics.csv"):
        steps = [line.step for line in read_metrics(metrics) if line.split == "validation"]
        assert steps == sorted(set(steps)), "trained by two runners"


def test_jobs_locked_by_another_runner_are_left_to_it(tmp_path: Path) -> None:
    first, _, both, *_ = small_jobs()
    assert first.training is not None
    with file_lock(tmp_path / "runs" / ".locks" / f"{first.training.path(tmp_path / 'runs').name}.lock"):
        said = run(tmp_path, [first, both], until=time.time() + 6)  # the free training takes a second or two
    assert said == ["waiting for other runners to finish 2 cells"]
    assert both.training is not None
    trained = [path.parent.name for path in (tmp_path / "runs").glob("*/result.json")]
    assert trained == [both.training.path(tmp_path).name], "the training that nobody holds is done meanwhile"
    assert len(run(tmp_path, [first, both])) == 2, "a lock is gone when its holder is"


def test_a_training_is_saved_when_the_time_budget_ends_and_resumes(tmp_path: Path) -> None:
    job = small_jobs(spec=small_spec(epochs=60), cells=["mean"])[:1]
    began = time.monotonic()
    run(tmp_path, job, until=time.time() + 1.5)
    assert time.monotonic() - began < 10
    (metrics,) = (tmp_path / "runs").glob("*/metrics.csv")
    first = read_metrics(metrics)
    assert job_state(job[0], tmp_path / "results") == "open"
    run(tmp_path, job)
    assert job_state(job[0], tmp_path / "results") == "done"
    assert read_metrics(metrics)[: len(first)] == first, "what was done is not done again"


def test_no_job_starts_after_the_time_budget(tmp_path: Path) -> None:
    assert run(tmp_path, small_jobs(), until=time.time() - 1) == []
    assert not (tmp_path / "runs").exists()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from torchcaps.files import file_lock\n"
        "with file_lock(Path(sys.argv[1]) / 'work.lock'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, env=dict(os.environ))
    assert died.returncode == -signal.SIGKILL
    with file_lock(tmp_path / "work.lock"):
        pass
