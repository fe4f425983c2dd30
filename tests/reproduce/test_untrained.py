"""Counts and times are measured without training a network, and decide claims at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.small_paper import new_context
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.claims_text import describe_conditions
from torchcaps.reproduce.jobs import Job, plan_jobs, select_jobs
from torchcaps.reproduce.measures import measures
from torchcaps.reproduce.report import judge_paper, remaining_jobs
from torchcaps.reproduce.results import gather_results, read_result
from torchcaps.reproduce.runner import run_jobs
from torchcaps.reproduce.spec import Spec, list_papers, load_spec, parse_spec

TEXT = """
paper: cost2026
title: Costs
authors: Nobody
trainings:
  large:
    settings: {model: capsnet, data: mnist, epochs: EPOCHS, options: {filters: FILTERS}}
    laptop: {options: {filters: 8}}
  small: {settings: {model: capsnet, data: mnist, options: {decoder: none}}}
tables:
  table1:
    title: Parameters
    cells:
      large: {row: large, column: parameters, training: large, measure: parameters}
      small: {row: small, column: parameters, training: small, measure: parameters}
      ratio: {row: small, column: ratio, training: small, others: {baseline: large}, measure: parameter-ratio}
      error: {row: small, column: error, training: small, measure: test-error, published: 1.0}
claims:
  fewer: {statement: Fewer parameters, source: text, all: [{greater: [table1/large, table1/small]}]}
  share: {statement: Less than half, source: text, all: [{below: [table1/ratio, 0.5]}]}
"""


def cost_spec(epochs: int = 3, filters: int = 256) -> Spec:
    return parse_spec(TEXT.replace("EPOCHS", str(epochs)).replace("FILTERS", str(filters)))


def untrained(spec: Spec) -> list[Job]:
    return select_jobs([spec], "laptop", table=None, cells=[], seeds=None, without_training=True)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counted")
    jobs = untrained(cost_spec())
    run_jobs(jobs, new_context(folder, jobs))
    return folder


def test_counts_need_one_seed_and_no_run(counted: Path) -> None:
    jobs = untrained(cost_spec())
    assert [(job.name, job.seed, job.trainings) for job in jobs] == [
        (name, 0, []) for name in ("large", "small", "ratio")
    ]
    found = {job.name: read_result(job.result_file(counted / "results")) for job in jobs}
    assert {name: result.error for name, result in found.items()} == dict.fromkeys(found)
    assert (found["large"].value, found["small"].value) == (8_215_568, 6_804_224)
    assert found["ratio"].value == pytest.approx(6_804_224 / 8_215_568)
    assert found["small"].training is not None
    assert found["small"].training["model"] == "capsnet"
    assert found["small"].training_seconds is None
    assert not list((counted / "runs").glob("*/config.yaml")), "nothing was trained"


def test_counts_decide_claims(counted: Path) -> None:
    evidence = gather_results(cost_spec(), counted / "results")
    claims = judge_paper(evidence)
    assert {verdict.name: verdict.verdict for _, verdict in claims} == {"fewer": "holds", "share": "does not hold"}
    for _, verdict in claims:
        assert not verdict.conditional
        assert verdict.comparisons[0].test == "counted"
    assert remaining_jobs(evidence, claims) == []


def test_only_settings_of_the_network_outdate_a_count() -> None:
    def fingerprints(spec: Spec) -> dict[str, str]:
        return {job.name: job.fingerprint() for job in plan_jobs(spec, "laptop", seeds=1)}

    before, longer, wider = (fingerprints(spec) for spec in (cost_spec(), cost_spec(epochs=9), cost_spec(filters=8)))
    assert longer == before
    changed = {name for name in before if wider[name] != before[name]}
    assert changed == {"large", "ratio"}


def test_captions_of_costs_mention_no_training(counted: Path) -> None:
    laptop = gather_results(cost_spec(), counted / "results")[0]
    assert describe_conditions("laptop", laptop.cells.values()) == "Profile laptop, 1 seed."


def test_cells_that_need_training_are_refused_without_training() -> None:
    with pytest.raises(TorchcapsError, match="or need training"):
        select_jobs([cost_spec()], "laptop", table=None, cells=["error"], seeds=None, without_training=True)


@pytest.mark.parametrize("paper", list_papers())
def test_costs_need_no_trained_run(paper: str) -> None:
    jobs = plan_jobs(load_spec(paper), "paper", seeds=1)
    costs = {job.name: job.trainings for job in jobs if job.measure in ("parameters", "parameter-ratio")}
    costs |= {job.name: job.trainings for job in jobs if job.measure.endswith("-time-ratio")}
    assert not any(costs.values())
    assert all(job.trainings for job in jobs if job.roles and measures.get(job.measure).trained)
