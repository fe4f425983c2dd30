"""What pages and Markdown say alike: verdicts, comparisons, tests and origins, in words without markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchcaps.reproduce.captions import table_label
from torchcaps.reproduce.report import Judged
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.tables import show_number
from torchcaps.reproduce.verdicts import VERDICTS, Finding, Judgement, Verdict

HOW_JUDGED = (
    "A claim is an ordering or a difference that a paper states. It holds where the whole 95 % interval of every "
    "comparison lies on the paper's side, does not hold where that of one lies wholly on the other side, and is "
    "undecided else. Intervals are over seeds (Student's t, paired where the seeds are the same); with fewer than "
    "three seeds they are over test images, taken as independent, and speak about the networks that were trained and "
    "not about others. Every comparison is tested by itself: of a hundred between equals, five are decided by chance."
)
SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}  # so that no verdict is told by colour alone


def count_verdicts(judged: Judged) -> dict[Verdict, int]:
    """How many claims have which verdict."""
    return {verdict: sum(judgement.verdict == verdict for _, judgement in judged) for verdict in VERDICTS}


def lead_words(papers: Iterable[Judged]) -> str:
    """The state of all claims in a sentence."""
    found = [judged for judged in papers if judged]
    claims = [claim for judged in found for claim in judged]
    counts = count_verdicts(claims)
    missing = sum(not judgement.measured for _, judgement in claims)
    words = f"Of {len(claims)} claims in {len(found)} papers, {counts['holds']} hold in what was measured here, "
    words += f"{counts['does not hold']} do not, and {counts['undecided']} are undecided"
    return words + (f", {missing} of them because they are not measured yet." if missing else ".")


def verdict_words(judgement: Judgement) -> str:
    """A verdict with its sign; what nobody has measured has none."""
    return f"{SIGNS[judgement.verdict]} {judgement.verdict}" if judgement.measured else "not measured"


def finding_words(finding: Finding) -> str:
    """What came out of a comparison: the verdict, the interval and the test."""
    if finding.interval is None:
        return f"{finding.verdict} ({finding.test})" if finding.measured else finding.test
    found = finding.interval
    low, centre, high = (show_number(value, finding.unit) for value in (found.low, found.centre, found.high))
    value = f"{centre} {finding.unit}, 95 % interval {low} to {high}" if found.half else centre
    return f"{finding.verdict}, {'difference ' if finding.unit == 'points' else ''}{value} ({finding.test})"


def section_title(name: str, title: str) -> str:
    """A table's heading, with the number it has in the paper.

    >>> section_title("table1", "Errors"), section_title("black-box", "Errors")
    ('Table 1: Errors', 'Black box: Errors')
    """
    return title if title.startswith("Table") else f"{table_label(name)}: {title}"


def made_with(results: Sequence[CellResult]) -> str:
    """Where the numbers come from."""
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
