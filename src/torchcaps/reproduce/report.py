"""What there is to tell about a results folder: every paper's claims with verdicts, tables and pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchcaps.compare.figures import Picture
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.progress import progress_bar
from torchcaps.reproduce.evidence import PaperEvidence, gather
from torchcaps.reproduce.figures import table_pictures
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.spec import Profile, Spec, list_papers, load_spec
from torchcaps.reproduce.statements import claimed_cells
from torchcaps.reproduce.tables import PrintedTable, build_table
from torchcaps.reproduce.verdicts import Judgement, judge_claim

Judged = list[tuple[Profile, Judgement]]


@dataclass(frozen=True)
class Section:
    """A table or figure of a paper, in one profile."""

    name: str
    profile: Profile
    table: PrintedTable | None
    pictures: list[Picture]


@dataclass(frozen=True)
class PaperReport:
    """A paper: each claim once for each profile that says something about it, and its tables."""

    spec: Spec
    claims: Judged
    sections: list[Section]
    results: list[CellResult]


def find_papers(folder: Path) -> list[str]:
    """All papers; a folder with results of a paper that is not known is refused."""
    if not folder.is_dir():
        raise TorchcapsError(
            f"there is no folder {folder}: make results with 'torchcaps reproduce', or name another folder"
        )
    for path in folder.glob("*/*/*-seed*.json"):
        if path.parts[-3] not in list_papers():
            raise unknown_name(f"in {folder}: paper", path.parts[-3], list_papers())
    return list_papers()


def judge_paper(evidence: Iterable[PaperEvidence]) -> Judged:
    """Every claim in each profile that has measured something of it; in the first if none has."""
    profiles = list(evidence)
    found = []
    for name, claim in profiles[0].spec.claims.items():
        chosen = [each for each in profiles if each.has_results(claimed_cells(claim))] or profiles[:1]
        found += [(each.profile, judge_claim(name, each)) for each in chosen]
    return found


def report_paper(spec: Spec, folder: Path) -> PaperReport:
    """Everything about one paper."""
    evidence = gather(spec, folder)
    results = [result for each in evidence for cell in each.cells.values() for result in cell.results]
    return PaperReport(spec, judge_paper(evidence), _sections(evidence), results)


def read_report(folder: Path) -> list[PaperReport]:
    """Everything about all papers."""
    papers = find_papers(folder)
    reports = []
    with progress_bar("papers", len(papers)) as advance:
        for paper in papers:
            reports.append(report_paper(load_spec(paper), folder))
            advance(1)
    if not any(report.results for report in reports):
        raise TorchcapsError(f"{folder} holds no results: make some, such as with 'torchcaps reproduce gu2021 table1'")
    return reports


def _sections(evidence: list[PaperEvidence]) -> list[Section]:
    """Every table in each profile in which something of it was measured; in the first if in none."""
    found = []
    for name, table in evidence[0].spec.tables.items():
        paths = [f"{name}/{cell}" for cell in table.cells]
        chosen = [each for each in evidence if each.has_results(paths)] or evidence[:1]
        found += [Section(name, each.profile, build_table(each, name), table_pictures(each, name)) for each in chosen]
    return found
