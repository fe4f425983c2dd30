"""What was learned from all papers: findings and verdicts by topic, what is open, its cost, and the compute spent."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

from docs_parts.found import all_evidence
from docs_parts.marks import Maker, table
from docs_parts.papers import claim_verdicts, paper_results
from torchcaps.files import read_yaml
from torchcaps.html import escape_markdown
from torchcaps.reproduce.estimate import images_shown, job_cost
from torchcaps.reproduce.jobs import Job, digest
from torchcaps.reproduce.report import ClaimVerdicts, describe_cost, describe_verdict, remaining_jobs
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.spec import TOPICS
from torchcaps.reproduce.tables import format_published, format_value
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict, ComparisonResult
from torchcaps.train import RunConfig

FINDINGS = Path(__file__).with_name("learned.yaml")
FIGURE = re.compile(r"\{([a-z0-9]+)/([^}:]+)(:published)?\}")  # paper, table/cell


@cache
def read_findings() -> dict[str, list[dict[str, Any]]]:
    """Findings in plain words by topic; the file says what they consist of."""
    return dict(read_yaml(FINDINGS))


def learned(results: Path, topic: str) -> str:
    """What is settled about a topic, by which figure, and what is open."""
    if topic not in TOPICS:
        raise SystemExit(f"there is no topic '{topic}': one of {', '.join(TOPICS)}")
    claims = {
        paper: [(profile, each) for profile, each in judged if each.claim.topic == topic]
        for paper, judged in claim_verdicts(results).items()
    }
    lines = [
        _settled(paper, each)
        for verdict in VERDICTS[:-1]
        for paper, judged in claims.items()
        for _, each in judged
        if each.verdict == verdict
    ]
    findings = [found for each in read_findings().get(topic, []) if (found := _finding(results, each))]
    short, still_open = _open(results, claims)
    if not lines:
        return f"Nothing is settled yet. {still_open}"
    plural = "claim" if len(lines) == 1 else "claims"
    summary = f"{len(lines)} tested {plural}, with figures; {short}"
    tested = "\n".join([*lines, "", still_open])
    details = f'<details markdown="1">\n<summary>{summary}</summary>\n\n{tested}\n\n</details>'
    return "\n\n".join(["\n".join(f"- {each}" for each in findings), details]).strip()


def _finding(results: Path, finding: dict[str, Any]) -> str | None:
    """A finding with its figures; None if one of its claims has another verdict by now."""
    profiles = dict[str, str]()
    for path, verdict in finding["claims"].items():
        paper, _, name = path.partition("/")
        profile, found = next(each for each in claim_verdicts(results)[paper] if each[1].name == name)
        if found.verdict != verdict:
            return None
        profiles[paper] = profile

    def figure(match: re.Match[str]) -> str:
        paper, path, published = match.groups()
        evidence = next(each for each in all_evidence(results)[paper] if each.profile == profiles[paper])
        cell = evidence.cells[path]
        if published:
            assert cell.cell.published is not None
            return format_published(cell.cell.published)
        return format_value(statistics.fmean(cell.values.values()), cell.results[0].unit)

    papers = ", ".join(f"[{paper}](papers/{paper}.md)" for paper in profiles)
    return f"{FIGURE.sub(figure, finding['text'])} ({papers})"


def _settled(paper: str, found: ClaimVerdict) -> str:
    """A claim with its verdict and the first comparison that has the same verdict."""
    index = next((i for i, each in enumerate(found.comparisons) if each.verdict == found.verdict), 0)
    deciding, asked = found.comparisons[index], found.claim.comparisons[index]
    more = len(found.comparisons) - 1
    others = f"; {more} more comparison{'' if more == 1 else 's'}" if more else ""
    difference = "difference " if sum(map(len, asked.terms())) > 1 else ""
    figure = f"{escape_markdown(deciding.statement)}: {difference}{_figure(deciding)}{others}"
    statement = escape_markdown(found.claim.statement.rstrip("."))
    return f"- **{describe_verdict(found)}**: {statement} ([{paper}](papers/{paper}.md)). {figure}."


def _figure(found: ComparisonResult) -> str:
    """The value of a comparison with its interval."""
    if found.interval is None:
        return found.verdict
    interval = found.interval
    low, center, high = (format_value(value, found.unit) for value in (interval.low, interval.center, interval.high))
    spread = f" {found.unit} (95 % interval {low} to {high})" if interval.half_width else ""
    return f"{center}{spread}"


def _open(results: Path, claims: dict[str, ClaimVerdicts]) -> tuple[str, str]:
    """How many claims are not testable yet and the core-hours to test them, in short and with their papers."""
    counts = Counter(
        {paper: sum(each.verdict == VERDICTS[-1] for _, each in judged) for paper, judged in claims.items()}
    )
    if not counts.total():
        return "none open", "All claims on this were tested."
    jobs, known = list[Job](), list[CellResult]()
    for paper, profiles in all_evidence(results).items():
        jobs += remaining_jobs(profiles, claims[paper])
        known += paper_results(profiles)
    papers = ", ".join(f"{number} of [{paper}](papers/{paper}.md)" for paper, number in counts.items() if number)
    plural = "claim is" if counts.total() == 1 else "claims are"
    cost = describe_cost(job_cost(jobs, known))
    return f"{counts.total()} open, {cost}", f"{counts.total()} {plural} not testable yet ({papers}); {cost}."


def compute_spent(results: Path) -> str:
    """Trainings, images shown and core-hours behind the result files of each paper, and their sum."""
    spent: dict[str, tuple[int, float, float]] = {}
    for paper, profiles in all_evidence(results).items():
        runs: dict[str, tuple[float, float]] = {}
        for result in paper_results(profiles):
            if result.training and result.training_seconds:
                clock = result.training_seconds * int(result.environment.get("threads") or 1)
                hours = (result.training_core_seconds or clock) / 3600
                runs[digest(result.training)] = images_shown(RunConfig(**result.training)), hours
        if runs:
            images, hours = (sum(each) for each in zip(*runs.values(), strict=True))
            spent[f"[{paper}](papers/{paper}.md)"] = len(runs), images, hours
    spent["all"] = tuple(sum(each[column] for each in spent.values()) for column in range(3))  # type: ignore[assignment]
    rows = [[name, f"{runs:,}", f"{images / 1e6:.1f}", f"{hours:.1f}"] for name, (runs, images, hours) in spent.items()]
    return table(["paper", "trainings", "million images", "core-hours"], rows, numbers=3)


def makers(results: Path) -> dict[str, Maker]:
    return {"learned": partial(learned, results), "compute-spent": partial(compute_spent, results)}
