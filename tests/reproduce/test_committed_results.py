"""The committed results belong to the shipped specs: no refactoring may change a fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchcaps.reproduce.jobs import digest, plan_jobs
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.spec import PROFILES, list_papers, load_spec

RESULTS = Path(__file__).parents[2] / "results"
# Digest of all fingerprints of a paper in the profiles with results. Change it only together with the paper's spec.
PINNED = ("laptop", "paper")
FINGERPRINTS = {
    "chen2019": "da54380f6e",
    #
    "choi2019": "3422d55a5e",
    #
    "gu2021": "68afd39a98",
    #
    "hinton2018": "e17fc43000",
    #
    "sabour2017": "542d210a6f",
    #
    "yang2021": "0a9a317946",
    #
    "hahn2019": "e70995ccc3",
    #
    "mazzia2021": "daffc3d1b5",
    #
    "mitterreiter2023": "11690426e7",
    #
    "ribeiro2020": "57b3a53f46",
    #
    "tsai2020": "5aaf9e8c09",
}
# Tables whose results were measured with earlier settings of the spec, and await a new measurement.
OUTDATED: dict[str, tuple[str, ...]] = {
    "chen2019": ("table2", "table3", "black-box", "universal-attack"),
    #
    "choi2019": ("table1",),
    #
    "gu2021": ("table1", "table2", "table3", "table4", "table5", "fig3", "fig4"),
    #
    "hinton2018": ("table1", "table2"),
    #
    "sabour2017": (),
    #
    "yang2021": ("fig3", "fig4", "table2"),
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
        paper: digest(sorted([*key, value] for key, value in current.items() if key[0] == paper and key[1] in PINNED))
        for paper in list_papers()
    }
    assert found == FINGERPRINTS


@pytest.mark.skipif(not RESULTS.is_dir(), reason="only a clone has the results")
def test_every_committed_result_has_the_fingerprint_of_its_cell(current: dict[Key, str]) -> None:
    results = list(find_results(RESULTS))
    assert results
    outdated = [
        each for each in results if each.fingerprint != current[each.paper, each.profile, each.table, each.cell]
    ]
    assert {(each.paper, each.table) for each in outdated} == {
        (paper, table) for paper, tables in OUTDATED.items() for table in tables
    }
