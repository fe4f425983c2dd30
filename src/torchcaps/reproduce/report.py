"""The report on a results folder: claims with verdicts, tables and figures of every paper, and their wording.

report_pages.py writes it as HTML and Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.html import ThemedFigure
from torchcaps.progress import progress_bar
from torchcaps.reproduce.claims_text import claimed_cells, table_label
from torchcaps.reproduce.figures import table_figures
from torchcaps.reproduce.results import CellResult, PaperEvidence, gather_results
from torchcaps.reproduce.spec import Profile, Spec, list_papers, load_spec
from torchcaps.reproduce.tables import PrintedTable, build_table, format_value
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict, ComparisonResult, Verdict, judge_claim

ClaimVerdicts = list[tuple[Profile, ClaimVerdict]]


@dataclass(frozen=True)
class Section:
    """A table or figure of a paper, in one profile."""

    name: str
    profile: Profile
    table: PrintedTable | None
    figures: list[ThemedFigure]


@dataclass(frozen=True)
class PaperReport:
    """A paper: each claim once per profile with results for it, and the tables and figures."""

    spec: Spec
    claims: ClaimVerdicts
    sections: list[Section]
    results: list[CellResult]


def find_specs(folder: Path, extra: Spec | None = None) -> list[Spec]:
    """Return the shipped specs, or ``extra`` alone; results of an unknown paper are refused."""
    if not folder.is_dir():
        raise TorchcapsError(
            f"the results folder {folder} does not exist: run 'torchcaps reproduce' first, or pass another folder"
        )
    known = list_papers()
    if extra is not None:
        return [extra]
    for path in folder.glob("*/*/*-seed*.json"):
        if path.parts[-3] not in known:
            raise unknown_name(f"in {folder}: paper", path.parts[-3], known)
    return [load_spec(paper) for paper in known]


def judge_paper(evidence: Iterable[PaperEvidence]) -> ClaimVerdicts:
    """Judge every claim in each profile that has results for it, or in the first profile if none has."""
    profiles = list(evidence)
    found = []
    for name, claim in profiles[0].spec.claims.items():
        chosen = [each for each in profiles if each.has_results(claimed_cells(claim))] or profiles[:1]
        found += [(each.profile, judge_claim(name, each)) for each in chosen]
    return found


def report_paper(spec: Spec, folder: Path) -> PaperReport:
    """Collect everything about one paper."""
    evidence = gather_results(spec, folder)
    results = [result for each in evidence for cell in each.cells.values() for result in cell.results]
    return PaperReport(spec, judge_paper(evidence), _sections(evidence), results)


def read_report(folder: Path, spec: Spec | None = None) -> list[PaperReport]:
    """Collect everything about all shipped papers, or about the paper of one spec."""
    specs = find_specs(folder, spec)
    reports = []
    with progress_bar("papers", len(specs)) as advance:
        for each in specs:
            reports.append(report_paper(each, folder))
            advance(1)
    if not any(report.results for report in reports):
        raise TorchcapsError(f"{folder} has no results: create some, such as with 'torchcaps reproduce gu2021 table1'")
    return reports


def _sections(evidence: list[PaperEvidence]) -> list[Section]:
    """Return every table in each profile that has results for it, or in the first profile if none has."""
    found = []
    for name, table in evidence[0].spec.tables.items():
        paths = [f"{name}/{cell}" for cell in table.cells]
        chosen = [each for each in evidence if each.has_results(paths)] or evidence[:1]
        found += [Section(name, each.profile, build_table(each, name), table_figures(each, name)) for each in chosen]
    return found


HOW_JUDGED = (
    "A claim is an ordering or a difference that a paper states. It holds where the whole 95 % interval of every "
    "comparison lies on the paper's side, does not hold where that of one lies wholly on the other side, and is "
    "otherwise undecided. Intervals are over seeds (Student's t, paired where the seeds are the same); with fewer than "
    "three seeds they are over test images, assumed independent, and apply only to the networks that were trained. "
    "Every comparison is tested on its own: of a hundred between equals, about five are decided by chance."
)
SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}  # a verdict must be readable without color


def count_verdicts(judged: ClaimVerdicts) -> dict[Verdict, int]:
    """Count the claims with each verdict."""
    return {verdict: sum(claim.verdict == verdict for _, claim in judged) for verdict in VERDICTS}


def describe_totals(papers: Iterable[ClaimVerdicts]) -> str:
    """Summarize all claims in one sentence."""
    found = [judged for judged in papers if judged]
    claims = [claim for judged in found for claim in judged]
    counts = count_verdicts(claims)
    missing = sum(not verdict.measured for _, verdict in claims)
    words = f"Of {len(claims)} claims in {len(found)} papers, {counts['holds']} hold in what was measured here, "
    words += f"{counts['does not hold']} do not, and {counts['undecided']} are undecided"
    return words + (f", {missing} of them because they are not measured yet." if missing else ".")


def describe_verdict(verdict: ClaimVerdict) -> str:
    """Return a verdict with its sign, or 'not measured'."""
    return f"{SIGNS[verdict.verdict]} {verdict.verdict}" if verdict.measured else "not measured"


def describe_comparison(result: ComparisonResult) -> str:
    """Describe the result of a comparison: verdict, interval and test."""
    if result.interval is None:
        return f"{result.verdict} ({result.test})" if result.measured else result.test
    found = result.interval
    low, center, high = (format_value(value, result.unit) for value in (found.low, found.center, found.high))
    value = f"{center} {result.unit}, 95 % interval {low} to {high}" if found.half_width else center
    return f"{result.verdict}, {'difference ' if result.unit == 'points' else ''}{value} ({result.test})"


def section_title(name: str, title: str) -> str:
    """Return a table's heading, with its number in the paper.

    >>> section_title("table1", "Errors"), section_title("black-box", "Errors")
    ('Table 1: Errors', 'Black box: Errors')
    """
    return title if title.startswith("Table") else f"{table_label(name)}: {title}"


def describe_origin(results: Sequence[CellResult]) -> str:
    """Describe the origin of results: number of files, processors, torch versions and commits."""
    if not results:
        return "Nothing of this was measured yet."
    found = [result.environment for result in results]
    processors = sorted({str(each.get("processor")) for each in found})
    versions = [each.get("versions") for each in found]
    torch = sorted({str(each.get("torch")) for each in versions if isinstance(each, dict)})
    commits = sorted({str(each.get("commit"))[:12] for each in found})
    return (
        f"Made by 'torchcaps report' from {len(results)} result files, which name their commands. "
        f"Processor: {', '.join(processors)}. torch {', '.join(torch)}. Commits: {', '.join(commits)}."
    )
