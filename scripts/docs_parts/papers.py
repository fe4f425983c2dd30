"""The verdicts on the papers' claims: for README and the first page of the papers."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from docs_parts.found import all_evidence
from docs_parts.marks import Maker
from torchcaps.reproduce.report import ClaimVerdicts, judge_paper
from torchcaps.reproduce.report_pages import claims_table, summary_markdown

NOTHING = "No results yet: `torchcaps reproduce` makes them."
DECIDED = ("holds", "does not hold")


def claims_summary(results: Path, link: str) -> str:
    """How many claims of each paper hold; ``link`` makes an address of a paper's name."""
    claims = claim_verdicts(results)
    return summary_markdown(claims, link=link) if _measured(claims) else NOTHING


def claims_decided(results: Path) -> str:
    """Every claim that came out one way or the other."""
    claims = claim_verdicts(results)
    decided = {paper: [each for each in judged if each[1].verdict in DECIDED] for paper, judged in claims.items()}
    return claims_table(decided) if any(decided.values()) else "None of the claims is decided yet."


@cache
def claim_verdicts(results: Path) -> dict[str, ClaimVerdicts]:
    """The claims of all papers, judged once for all pages."""
    return {paper: judge_paper(evidence) for paper, evidence in all_evidence(results).items()}


def _measured(claims: dict[str, ClaimVerdicts]) -> bool:
    return any(verdict.measured for judged in claims.values() for _, verdict in judged)


def makers(results: Path) -> dict[str, Maker]:
    return {
        "claims-summary": partial(claims_summary, results),
        "claims-decided": partial(claims_decided, results),
    }
