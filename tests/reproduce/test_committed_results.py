"""The committed results belong to the shipped specs: no refactoring may change a fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchcaps.reproduce.jobs import digest, plan_jobs
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.spec import PROFILES, list_papers, load_spec

RESULTS = Path(__file__).parents[2] / "results"
# Digest of all fingerprints of a paper. Change it only together with the paper's spec.
FINGERPRINTS = {
    "chen2019": "242d9be414",
    "choi2019": "3ab98361e3",
    "gu2021": "2d0ba968b1",
    "hinton2018": "65424938d1",
    "sabour2017": "542d210a6f",
    "yang2021": "700b66f30d",
}
Key = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def current() -> dict[Key, str]:
    """Fingerprint of every cell by paper, profile, table and name."""
    jobs = [
        job for paper in list_papers() for profile in PROFILES for job in plan_jobs(load_spec(paper), profile, seeds=1)
    ]
    return {(job.spec.paper, job.profile, job.table, job.name): job.fingerprint() for job in jobs}


def test_fingerprints_of_the_shipped_specs_are_unchanged(current: dict[Key, str]) -> None:
    found = {
        paper: digest(sorted([*key, value] for key, value in current.items() if key[0] == paper))
        for paper in list_papers()
    }
    assert found == FINGERPRINTS


@pytest.mark.skipif(not RESULTS.is_dir(), reason="only a clone has the results")
def test_every_committed_result_has_the_fingerprint_of_its_cell(current: dict[Key, str]) -> None:
    results = list(find_results(RESULTS))
    assert results
    for each in results:
        assert each.fingerprint == current[each.paper, each.profile, each.table, each.cell], each
