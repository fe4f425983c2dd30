"""Durations are estimated from earlier runs, cached timings, shipped speeds or a few timed steps."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.training_speeds import every_network

from tests.helpers.small_paper import new_context, small_jobs, small_spec
from tests.helpers.synthetic_results import ENVIRONMENT
from torchcaps.bench.timing import num_threads
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json, write_json
from torchcaps.reproduce.estimate import (
    Cost,
    Estimator,
    job_cost,
    measure_speed,
    parse_duration,
    shipped_machine,
    shipped_speed,
    shipped_speeds,
    speed_key,
    training_images,
)
from torchcaps.reproduce.jobs import TrainingJob, select_jobs, training_job
from torchcaps.reproduce.runner import Folders, run_jobs
from torchcaps.reproduce.spec import list_papers, load_spec
from torchcaps.reproduce.status import plan_rows
from torchcaps.train import new_run, resolve

# Papers whose networks are timed in all profiles.
ALL_PROFILES = ("sabour2017", "hinton2018", "chen2019", "choi2019", "yang2021", "gu2021")
SECONDS_OF_MEASURE = 3.0


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """New folders for results and runs, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Folders(tmp_path / "results", tmp_path / "runs")


def kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").rglob("speeds/*.json"))


def test_a_speed_is_measured_once_and_cached(folders: Folders, tmp_path: Path) -> None:
    config = small_jobs()[0].trainings[0].config
    assert Estimator(folders, may_measure=False).speed(config) is None
    assert kept(tmp_path) == []
    speed = Estimator(folders).speed(config)
    (file,) = kept(tmp_path)
    write_json(file, read_json(file) | {"images_per_second": 123.0})
    assert speed is not None
    assert speed > 100
    assert Estimator(folders, may_measure=False).speed(config) == 123.0
    assert Estimator(folders, may_measure=False).speed(config.model_copy(update={"batch_size": 7})) is None


def test_shipped_speeds_estimate_networks_never_run_here(folders: Folders, tmp_path: Path) -> None:
    config = training_job(load_spec("gu2021"), "capsnet-mnist", "paper", 0).config
    shipped = Estimator(folders, may_measure=False).speed(config)
    assert shipped == shipped_speed(config)
    assert Estimator(folders).speed(config) == shipped, "the plan agrees with 'torchcaps papers': nothing is timed"
    assert "threads" in shipped_machine()
    new_run(config, folders.runs / "here")
    write_json(folders.runs / "here" / "result.json", {"images_per_second": 7.0})
    assert Estimator(folders, may_measure=False).speed(config) == 7.0
    assert kept(tmp_path) == []


def test_every_network_of_the_specs_has_a_shipped_speed() -> None:
    """Of the later papers those of profile desk alone, from which core-hours are computed."""
    machine, later = max(threads for _, threads in shipped_speeds()), set(list_papers()) - set(ALL_PROFILES)
    needed = {**every_network(machine, papers=ALL_PROFILES), **every_network(machine, ["desk"], later)}
    again = "run: python -m benchmarks.training_speeds"
    assert set(needed) <= set(shipped_speeds()) <= set(every_network(machine)), again
    assert all(speed > 0 for speed in shipped_speeds().values())


def test_earlier_runs_take_precedence_over_cached_speeds(folders: Folders, tmp_path: Path) -> None:
    jobs = small_jobs(cells=["mean"])[:1]
    run_jobs(jobs, new_context(tmp_path, jobs))
    result_file = jobs[0].trainings[0].path(folders.runs) / "result.json"
    write_json(result_file, read_json(result_file) | {"images_per_second": 50.0})
    config = jobs[0].trainings[0].config
    assert Estimator(folders).speed(config) == 50.0
    assert kept(tmp_path) == []
    # One epoch of 180 images, and four looks at the other 20, which are three times as fast.
    assert Estimator(folders).training_seconds(config) == pytest.approx((180 + 4 * 20 / 3) / 50)
    longer = config.model_copy(update={"epochs": 10, "stop_at_accuracy": 0.99})
    assert Estimator(folders).training_seconds(longer) == pytest.approx((1800 + 90 * 20 / 3) / 50)
    short = config.model_copy(update={"epochs": 10, "steps": 2})
    assert Estimator(folders).training_seconds(short) == pytest.approx((64 + 4 * 20 / 3) / 50)


def test_shared_trainings_count_once_and_finished_ones_not_at_all(folders: Folders, tmp_path: Path) -> None:
    jobs = small_jobs()[:3]
    first, again, both = Estimator(folders).seconds(jobs)
    assert first is not None
    assert first > 0
    assert again == 0, "its training is counted before"
    assert both is not None
    assert both > 0, "one of its two trainings is its own"
    run_jobs(jobs[:1], new_context(tmp_path, jobs))
    measured = Estimator(folders)
    assert measured.seconds(jobs[:1])[0] == pytest.approx(measured._measure_seconds["weights-mean", "laptop"])
    assert (measured.seconds(jobs[:1], include_trained=True)[0] or 0) > (measured.seconds(jobs[:1])[0] or 0)


def test_a_matched_training_includes_its_baseline(folders: Folders) -> None:
    plain, _, other, *_ = small_jobs()
    assert plain.training is not None
    assert other.training is not None
    matched = replace(plain, training=TrainingJob(plain.training.config, matched_to=other.training.config))
    estimator = Estimator(folders)
    expected = sum(estimator.training_seconds(each.config) or 0 for each in (plain.training, other.training))
    assert estimator.seconds([matched]) == [pytest.approx(expected)]


def test_the_plan_marks_shared_and_finished_trainings(folders: Folders, tmp_path: Path) -> None:
    jobs = small_jobs()
    run_jobs(jobs[:1], new_context(tmp_path, jobs))
    rows, seconds = plan_rows(jobs, folders)
    assert seconds[0] == 0
    assert sum(each or 0 for each in seconds) > 0
    assert rows[0] == ("small2026", "table1", "mean", "0", "first (trained)", "done", "")
    assert rows[2][2:6] == ("both", "0", "second, first (trained)", "open")
    assert rows[3][2:6] == ("mean", "1", "first (shared)", "open")


def test_unknown_names_suggest_the_closest_one() -> None:
    spec = small_spec()
    with pytest.raises(TorchcapsError, match="table of small2026 'tabel1' is unknown: did you mean 'table1'"):
        select_jobs([spec], "laptop", table="tabel1", cells=[], seeds=None)
    with pytest.raises(TorchcapsError, match="cell of small2026 table1 'maen' is unknown: did you mean 'mean'"):
        select_jobs([spec], "laptop", table="table1", cells=["maen"], seeds=None)
    with pytest.raises(TorchcapsError, match="name the paper instead of 'all'"):
        select_jobs([spec, spec], "laptop", table="table1", cells=[], seeds=None)
    with pytest.raises(TorchcapsError, match="there is nothing to measure in profile laptop"):
        select_jobs([spec], "laptop", table="table1", cells=["cited"], seeds=None)
    with pytest.raises(TorchcapsError, match="paper 'gu2012' is unknown: did you mean 'gu2021'"):
        load_spec("gu2012")
    assert len(select_jobs([spec], "laptop", table=None, cells=["fine", "mean"], seeds=4)) == 8


@pytest.mark.parametrize("text", ["", "30", "m", "-3m", "30 m", "half an hour", "1e9s"])
def test_an_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(TorchcapsError, match="write it like 90s, 30m, 2h or 1h30m"):
        parse_duration(text)


def test_desk_is_estimated_for_one_thread(folders: Folders, tmp_path: Path) -> None:
    """Two threads had 80 images per second: one thread has half of that until it is measured."""
    config = training_job(load_spec("gu2021"), "capsnet-mnist", "laptop", 0).config
    estimator = Estimator(folders, may_measure=False)
    whole, one = estimator.speed(config), estimator.speed(config, 1)
    assert whole is not None
    assert one is not None
    assert whole / 2 <= one < whole
    assert estimator.training_seconds(config, 1) == pytest.approx(training_images(config) / one)
    run = new_run(config, folders.runs / "here")
    write_json(run.path / "result.json", {"images_per_second": 7.0, "environment": ENVIRONMENT | {"threads": 1}})
    assert Estimator(folders, may_measure=False).speed(config, 1) == 7.0


def test_core_hours_count_a_shared_training_once(folders: Folders) -> None:
    jobs = select_jobs([load_spec("sabour2017")], "laptop", table="table1", cells=[], seeds=1)
    first = [job for job in jobs if job.training == jobs[0].training]
    assert len(first) > 1
    config = first[0].training.config  # type: ignore[union-attr]
    hours = training_images(config) / (shipped_speed(config, 1) or 1) / 3600
    assert job_cost(first, []).core_hours == pytest.approx(hours)
    unknown = small_jobs()
    assert job_cost([*first, *unknown], []) == Cost(pytest.approx(hours), unknown=4)  # type: ignore[arg-type]


def test_the_step_size_of_a_routing_does_not_make_another_network() -> None:
    plain, stepping, iterated = (
        speed_key(resolve(model="capsnet-l2", options=options))
        for options in (
            {},
            {"routing_options": {"gamma": 1e-6, "weight": 1.0}},
            {"routing_options": {"gamma": 1e-6, "start": 0.2}},
        )
    )
    assert plain == stepping != iterated


@pytest.mark.parametrize(("threads", "clock"), [(1, time.process_time), (2, time.perf_counter)])
def test_one_thread_is_timed_by_its_cpu_time(threads: int, clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine lets a process wait for its core, which says nothing about the speed of a network."""
    used: list[object] = []
    monkeypatch.setattr(
        "torchcaps.reproduce.estimate.time_workloads",
        lambda jobs, *rest: used.append(rest[-1]) or {"capsnet": [0.5]},
    )
    with num_threads(threads):
        assert measure_speed(resolve(model="capsnet", batch_size=32)) == 64
    assert used == [clock]
