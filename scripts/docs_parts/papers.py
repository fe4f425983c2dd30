"""The verdicts on the papers' claims: for README and the first page of the papers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from itertools import chain
from pathlib import Path

from docs_parts.found import all_evidence
from docs_parts.marks import Maker
from torchcaps.reproduce.estimate import job_cost
from torchcaps.reproduce.jobs import Job
from torchcaps.reproduce.report import ClaimVerdicts, claim_costs, judge_paper, remaining_jobs
from torchcaps.reproduce.report_markdown import claims_table, summary_markdown, untestable_table
from torchcaps.reproduce.results import CellResult, PaperEvidence

NOTHING = "No results yet: `torchcaps reproduce` makes them."


def claims_summary(results: Path, link: str) -> str:
    """How many claims of each paper have each verdict; ``link`` makes an address of a paper's name."""
    claims = claim_verdicts(results)
    if not _measured(claims):
        return NOTHING
    found = {paper: paper_results(profiles) for paper, profiles in all_evidence(results).items()}
    costs = {paper: job_cost(jobs, found[paper]) for paper, jobs in remaining(results).items()}
    total = job_cost(chain.from_iterable(remaining(results).values()), chain.from_iterable(found.values()))
    return summary_markdown(claims, costs, total, link=link)


def claims_tested(results: Path) -> str:
    """Every claim that competent networks tested: holds, does not hold, undecided."""
    return claims_table(claim_verdicts(results))


def claims_untestable(results: Path) -> str:
    """Every claim that is not testable yet, with what is missing and what testing it costs."""
    claims = claim_verdicts(results)
    costs = {
        paper: claim_costs(profiles, claims[paper], paper_results(profiles))
        for paper, profiles in all_evidence(results).items()
    }
    return untestable_table(claims, costs)


def paper_results(profiles: Iterable[PaperEvidence]) -> list[CellResult]:
    """All results of a paper, of every profile."""
    return [result for each in profiles for result in each.all_results()]


@cache
def remaining(results: Path) -> dict[str, list[Job]]:
    """What must run before all claims of each paper can be tested."""
    claims = claim_verdicts(results)
    return {paper: remaining_jobs(evidence, claims[paper]) for paper, evidence in all_evidence(results).items()}


@cache
def claim_verdicts(results: Path) -> dict[str, ClaimVerdicts]:
    """The claims of all papers, judged once for all pages."""
    return {paper: judge_paper(evidence) for paper, evidence in all_evidence(results).items()}


def _measured(claims: dict[str, ClaimVerdicts]) -> bool:
    return any(verdict.measured for judged in claims.values() for _, verdict in judged)


def makers(results: Path) -> dict[str, Maker]:
    return {
        "claims-summary": partial(claims_summary, results),
        "claims-tested": partial(claims_tested, results),
        "claims-untestable": partial(claims_untestable, results),
    }
