"""The report on a results folder: claims with verdicts, tables and figures of every paper, and their wording.

report_html.py and report_markdown.py write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.html import ThemedFigure
from torchcaps.progress import progress_bar
from torchcaps.reproduce.claims_text import cell_label, claimed_cells, table_label
from torchcaps.reproduce.competence import EARLIER, NOT_MEASURED, competence_gaps, condition_cells
from torchcaps.reproduce.estimate import Cost, job_cost
from torchcaps.reproduce.figures import table_figures
from torchcaps.reproduce.jobs import Job, plan_jobs
from torchcaps.reproduce.results import CellResult, PaperEvidence, gather_results
from torchcaps.reproduce.spec import SMOKE, Profile, Spec, list_papers, load_spec
from torchcaps.reproduce.tables import PrintedTable, build_table, format_value
from torchcaps.reproduce.verdicts import COUNTED, VERDICTS, ClaimVerdict, ComparisonResult, Verdict, judge_claim

ClaimVerdicts = list[tuple[Profile, ClaimVerdict]]
# The profile that decides a claim is the first of these in which it is testable.
PRECEDENCE: tuple[Profile, ...] = ("paper", "desk", "laptop")
TITLE = "What the papers claim, and what holds"
NO_VALUES = "Not measured yet."
COST = "core-hours"


@dataclass(frozen=True)
class Section:
    """A table or figure of a paper, in one profile."""

    name: str
    profile: Profile
    table: PrintedTable | None
    figures: list[ThemedFigure]
    smoke: str = ""  # what the results of the smoke profile do not show

    @property
    def has_values(self) -> bool:
        """Whether anything was measured, or there is nothing else to show."""
        return bool(self.figures) or self.table is None or self.table.has_values


@dataclass(frozen=True)
class PaperReport:
    """A paper: each claim once, in the profile that decides it, and the tables and figures."""

    spec: Spec
    claims: ClaimVerdicts
    sections: list[Section]
    results: list[CellResult]
    remaining: list[Job]  # what must run before the claims that are not testable yet can be tested
    claim_costs: dict[str, Cost]  # of testing each of these claims

    @property
    def cost(self) -> Cost:
        """The cost of what remains."""
        return job_cost(self.remaining, self.results)


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
    """Judge every claim in the profile that decides it.

    Profiles in which the claim is testable with enough seeds come first, then those with too few seeds, then those with
    any results; among equals, the larger profile. So a decision is never preferred to an undecided outcome.
    """
    profiles = sorted(evidence, key=lambda each: PRECEDENCE.index(each.profile))
    return [
        min(((each.profile, judge_claim(name, each)) for each in profiles), key=lambda found: _standing(found[1]))
        for name in profiles[0].spec.claims
    ]


def _standing(verdict: ClaimVerdict) -> int:
    if verdict.verdict != "not testable yet":
        return 1 if verdict.few_seeds else 0
    return 2 if verdict.measured else 3


def remaining_jobs(evidence: Iterable[PaperEvidence], claims: ClaimVerdicts) -> list[Job]:
    """Return the jobs, in profile desk, that must run before claims that are not testable yet can be tested.

    They measure the cells of these claims and those of the competence conditions. A claim with a cell that profile desk
    does not have needs profile paper.
    """
    profiles = {each.profile: each for each in evidence}
    jobs: dict[str, Job] = {}
    for _, verdict in claims:
        if verdict.verdict != "not testable yet":
            continue
        cells = claimed_cells(verdict.claim)
        spec = profiles["desk"].spec
        chosen = profiles["desk" if all("desk" in spec.cell(path).profiles for path in cells) else "paper"]
        wanted = dict.fromkeys([*cells, *(each for path in cells for each in condition_cells(path, chosen))])
        for path in wanted:
            table, _, name = path.partition("/")
            for job in plan_jobs(spec, chosen.profile, tables=[table], cells=[name]):
                done = chosen.cells[path]
                if done.outdated or job.seed not in {result.seed for result in done.results}:
                    jobs[str(job.result_file(Path()))] = job
    return list(jobs.values())


def claim_costs(
    evidence: Sequence[PaperEvidence], claims: ClaimVerdicts, results: Iterable[CellResult]
) -> dict[str, Cost]:
    """Return what testing each claim that is not testable yet costs, by its name.

    Claims share trainings: all of them together cost less than the sum.
    """
    known = list(results)
    return {
        each[1].name: job_cost(remaining_jobs(evidence, [each]), known)
        for each in claims
        if each[1].verdict == "not testable yet"
    }


def report_paper(spec: Spec, folder: Path) -> PaperReport:
    """Collect everything about one paper."""
    evidence = gather_results(spec, folder)
    results = [result for each in evidence for result in each.all_results()]
    claims = judge_paper(evidence)
    costs = claim_costs(evidence, claims, results)
    return PaperReport(spec, claims, _sections(evidence), results, remaining_jobs(evidence, claims), costs)


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
        found += [
            Section(name, each.profile, build_table(each, name), table_figures(each, name), smoke_note(each, paths))
            for each in chosen
        ]
    return found


def smoke_note(paper: PaperEvidence, paths: Iterable[str]) -> str:
    """Return what the results of the smoke profile are good for; nothing if all networks are competent."""
    measured = [path for path in paths if paper.cells[path].results]
    competent = [path for path in measured if not paper.cells[path].outdated and not competence_gaps(path, paper)]
    if paper.profile != SMOKE or len(competent) == len(measured):
        return ""
    note = "Smoke profile: shows that the experiment runs, decides nothing"
    labels = [cell_label(path, paper) for path in competent]
    return f"{note}. Competent or exempt: {', '.join(labels)}." if labels else f"{note}."


HOW_JUDGED = (
    "A claim is an ordering or a difference that a paper states. It is not testable yet while a network that it needs "
    "is missing, or makes more errors than its competence condition allows: by default 1.5 times the published error "
    "plus 0.5 points. Otherwise it holds where every comparison differs from its bound on the paper's side, and does "
    "not hold where one differs on the other side, at the 5 % level with three or more seeds (Student's t, paired "
    "where the seeds are the same, p-values adjusted by Holm's method for all comparisons of the claim). In all other "
    "cases it is undecided. Counts, times and random references presuppose no accuracy and are exempt."
)
# A verdict must be readable without color.
SIGNS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not testable yet": "…"}
MOST_GAPS = 2  # in an overview


def count_verdicts(judged: ClaimVerdicts) -> dict[Verdict, int]:
    """Count the claims with each verdict."""
    return {verdict: sum(claim.verdict == verdict for _, claim in judged) for verdict in VERDICTS}


def describe_totals(papers: Iterable[ClaimVerdicts], cost: Cost) -> str:
    """Summarize all claims in two sentences; ``cost`` is that of the claims that are not testable yet."""
    found = [judged for judged in papers if judged]
    claims = [claim for judged in found for claim in judged]
    held, failed, undecided, left = count_verdicts(claims).values()
    where = f" in {len(found)} papers" if len(found) > 1 else ""
    tested = len(claims) - left
    words = (
        f"Of {len(claims)} claims{where}, {tested} {'is' if tested == 1 else 'are'} tested: "
        f"{held} {'holds' if held == 1 else 'hold'}, {failed} {'does' if failed == 1 else 'do'} not hold, "
        f"{undecided} {'is' if undecided == 1 else 'are'} undecided."
    )
    if not left:
        return words
    reason = "because networks are missing or not as good as the paper's"
    open_ones = (
        f"{words} {left} {'is' if left == 1 else 'are'}" if tested else f"None of {left} claims{where} is testable"
    )
    return f"{open_ones}{' not testable' if tested else ''} yet, {reason}; testing them takes {describe_cost(cost)}."


def describe_cost(cost: Cost) -> str:
    """Return a cost in words."""
    if not cost.unknown:
        return f"about {cost} core-hours"
    known = "an unknown time" if str(cost) == "?" else f"more than {str(cost).removeprefix('> ')} core-hours"
    return f"{known} ({cost.unknown} trainings have no measured speed yet)"


def describe_verdict(verdict: ClaimVerdict) -> str:
    """Return a verdict with its sign; what is undecided for lack of seeds says so."""
    return f"{SIGNS[verdict.verdict]} {verdict.verdict}{f' ({verdict.few_seeds})' if verdict.few_seeds else ''}"


def describe_gaps(verdict: ClaimVerdict, most: int | None = None) -> str:
    """Return what is missing before a claim can be tested; ``most`` limits the number of sentences."""
    for reason in (NOT_MEASURED, EARLIER):  # the same for all its cells: said once
        if len(verdict.gaps) == len(claimed_cells(verdict.claim)) and all(
            gap.endswith(f": {reason}") for gap in verdict.gaps
        ):
            return f"all cells: {reason}"
    shown = list(verdict.gaps[:most])
    left = len(verdict.gaps) - len(shown)
    return "; ".join([*shown, *([f"and {left} more"] if left else [])])


def describe_comparison(result: ComparisonResult, *, with_gaps: bool = True) -> str:
    """Describe the result of a comparison: verdict, interval and test, or what is missing."""
    if result.gaps:
        return f"{result.verdict} ({'; '.join(result.gaps)})" if with_gaps else result.verdict
    few = f" ({result.few_seeds})" if result.few_seeds else ""
    exempt = f"; no competence condition: {', '.join(result.exempt)}" if result.exempt else ""
    if result.interval is None:
        return f"{result.verdict}{few} ({result.test}{exempt})"
    found = result.interval
    low, center, high = (format_value(value, result.unit) for value in (found.low, found.center, found.high))
    value = f"{center} {result.unit}, 95 % interval {low} to {high}" if found.half_width else center
    difference = "difference " if result.unit == "points" else ""
    return f"{result.verdict}{few}, {difference}{value} ({result.test}{exempt})"


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


def total_cost(reports: Iterable[PaperReport]) -> Cost:
    """Return the cost of what remains of all papers; a training that two papers share counts once."""
    found = list(reports)
    results = (result for report in found for result in report.results)
    return job_cost((job for report in found for job in report.remaining), results)


def by_table(sections: Sequence[Section]) -> list[tuple[str, list[Section]]]:
    """Return the sections of each table or figure, one for each profile."""
    return [(name, list(group)) for name, group in groupby(sections, key=lambda section: section.name)]


def fold_title(section: Section, first: bool) -> str:
    """Return the title under which a section is folded; empty for the first one of a table that has values."""
    if not section.has_values:
        return f"{NO_VALUES} The paper's values"
    return "" if first else f"The same in profile {section.profile}"


def by_verdict(claims: ClaimVerdicts) -> ClaimVerdicts:
    """Return claims in the order of VERDICTS: decided ones first, those that are not testable yet last."""
    return sorted(claims, key=lambda claim: VERDICTS.index(claim[1].verdict))


def verdict_conditions(profile: Profile, verdict: ClaimVerdict) -> str:
    """Return in which profile a claim was tested, and whether that presupposes accuracy."""
    if all(result.test == COUNTED for result in verdict.comparisons):
        return "counted, without training"
    return f"profile {profile}" if verdict.conditional else f"profile {profile}; presupposes no accuracy"


def findings_title(verdict: ClaimVerdict) -> str:
    """Return the title under which the comparisons of a claim are folded."""
    count = len(verdict.comparisons)
    return f"{count} comparison{'' if count == 1 else 's'}{', and what is missing' if verdict.gaps else ''}"
