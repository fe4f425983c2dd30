"""Whether a paper's claims hold in what was measured here, and by which test.

Every comparison is a weighted sum of cells that must lie above or below a bound. It holds if its whole 95 % interval
lies on the right side, does not hold if all of it lies on the other side, and is undecided else. A claim holds if all
its comparisons do and does not hold if one of them does not. Each comparison is tested at 95 %, without a correction
for their number: where all must hold, more of them make it harder and not easier; but that one of k fails by chance
alone has a probability of up to k times 2.5 %, and a claim of several comparisons that does not hold says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchcaps.reproduce.evidence import Evidence, PaperEvidence
from torchcaps.reproduce.intervals import Interval, paired_interval, share_interval, welch_interval
from torchcaps.reproduce.spec import Claim, Comparison

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided")
EXACT = "count"  # the unit of what is counted and not estimated
SEEDS = 3  # from so many on their spread says how sure a mean is


@dataclass(frozen=True)
class Finding:
    """One comparison: what must be, what is, and how that was tested."""

    statement: str
    verdict: Verdict
    test: str  # in words; or why there is none
    interval: Interval | None = None
    unit: str = ""


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict, and whatever a reader must know to believe it."""

    name: str
    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]
    note: str  # ours, from the results folder


def judge_claims(paper: PaperEvidence) -> list[Judgement]:
    """All claims of a paper."""
    return [judge_claim(name, paper) for name in paper.spec.claims]


def judge_claim(name: str, paper: PaperEvidence) -> Judgement:
    """One claim of a paper."""
    claim = paper.spec.claims[name]
    findings = tuple(compare(comparison, paper) for comparison in claim.comparisons)
    verdicts = {finding.verdict for finding in findings}
    verdict: Verdict = "undecided"
    if "does not hold" in verdicts:
        verdict = "does not hold"
    elif verdicts == {"holds"}:
        verdict = "holds"
    cautions = _cautions(claim, paper)
    several = len(findings)
    if verdict == "does not hold" and several > 1:
        chance = f"{several} comparisons at 95 % each: that one fails by chance alone has a probability of up to"
        cautions += (f"{chance} {2.5 * several:g} %",)
    return Judgement(name, claim, verdict, findings, cautions, paper.notes.get(name, ""))


def claimed_cells(claim: Claim) -> list[str]:
    """Every cell that a claim speaks about, once."""
    return list(dict.fromkeys(path for comparison in claim.comparisons for path in _weights(comparison)))


def compare(comparison: Comparison, paper: PaperEvidence) -> Finding:
    """Test one comparison with the cells as they were measured."""
    statement = _statement(comparison, paper)
    weights = {path: weight for path, weight in _weights(comparison).items() if weight}
    missing = [_label(path, paper) for path in weights if not paper.cells[path].values]
    if missing:
        return Finding(statement, "undecided", f"not measured yet: {', '.join(missing)}")
    cells = [paper.cells[path] for path in weights]
    interval, test = _interval(list(weights.values()), cells)
    if interval is None:
        return Finding(statement, "undecided", test)
    bound, sign = _bound(comparison)
    low, high = sorted((sign * (interval.low - bound), sign * (interval.high - bound)))
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
    return Finding(statement, verdict, test, interval, cells[0].results[0].unit)


def _weights(comparison: Comparison) -> dict[str, float]:
    """How often each cell counts in the sum that is held against the bound; the greater term counts positively."""
    found: dict[str, float] = {}
    for term, sign in zip(comparison.terms(), (1.0, -1.0), strict=False):
        for path, part in zip(term, (sign, -sign), strict=False):
            found[path] = found.get(path, 0.0) + part
    return found


def _bound(comparison: Comparison) -> tuple[float, float]:
    """What the sum is held against, and on which side of it the right one is: 1 above, -1 below."""
    if comparison.greater:
        return 0.0, 1.0
    return (comparison.above[1], 1.0) if comparison.above else ((comparison.below or ("", 0.0))[1], -1.0)


def _interval(weights: Sequence[float], cells: Sequence[Evidence]) -> tuple[Interval | None, str]:
    """The interval of a sum of cells that fits what was measured, and its name in words."""
    samples = [list(cell.values.values()) for cell in cells]
    if all(cell.results[0].unit == EXACT for cell in cells):
        centre = sum(weight * sample[0] for weight, sample in zip(weights, samples, strict=True))
        return Interval(centre, centre, centre), "counted, so nothing is left to chance"
    images = [cell.images for cell in cells]
    spread = any(len(set(sample)) > 1 for sample in samples)
    shares = [count for count in images if count is not None]
    all_shares = len(shares) == len(cells)
    if all(len(sample) >= SEEDS for sample in samples) and (spread or not all_shares):
        return _over_seeds(weights, cells, samples)
    if not all_shares:
        return None, f"fewer than {SEEDS} seeds of a value that is no share of images: there is nothing to test with"
    means = [statistics.fmean(sample) / 100 for sample in samples]
    found = share_interval(weights, means, shares)
    percent = Interval(100 * found.centre, 100 * found.low, 100 * found.high)
    counted = f"{min(shares):,}" if min(shares) == max(shares) else f"{min(shares):,} to {max(shares):,}"
    if all(len(sample) >= SEEDS for sample in samples):
        reason = "the seeds do not differ at all, so their spread says nothing"
    else:
        reason = "seeds were not repeated often enough, so this is about these trained networks and not about others"
    return percent, f"normal interval of shares of {counted} images, taken as independent; {reason}"


def _over_seeds(
    weights: Sequence[float], cells: Sequence[Evidence], samples: Sequence[Sequence[float]]
) -> tuple[Interval, str]:
    seeds = [list(cell.values) for cell in cells]
    if all(each == seeds[0] for each in seeds):
        name = "paired t interval" if len(cells) > 1 else "t interval"
        return paired_interval(weights, samples), f"{name} over {len(seeds[0])} seeds"
    counts = sorted({len(each) for each in seeds})
    return welch_interval(weights, samples), f"Welch's t interval over {' and '.join(map(str, counts))} seeds"


def _label(path: str, paper: PaperEvidence) -> str:
    """A cell as a reader knows it: its row and column."""
    cell = paper.cells[path].cell
    return f"{cell.row} ({cell.column})"


def _statement(comparison: Comparison, paper: PaperEvidence) -> str:
    """The comparison as a formula with the names of rows and columns."""
    terms = [" minus ".join(_label(path, paper) for path in term) for term in comparison.terms()]
    if comparison.greater:
        return " > ".join(terms)
    bound, sign = _bound(comparison)
    return f"{terms[0]} {'>' if sign > 0 else '<'} {bound:g}"


def _cautions(claim: Claim, paper: PaperEvidence) -> tuple[str, ...]:
    """What stands between the numbers of a claim and belief in it."""
    paths = claimed_cells(claim)
    found = []
    old = [_label(path, paper) for path in paths if paper.cells[path].outdated]
    if old:
        found.append(f"made by earlier settings: {', '.join(old)}")
    failed = {result.error: path for path in paths for result in paper.cells[path].failures}
    found += [f"{_label(path, paper)} failed: {error}" for error, path in failed.items()]
    warned = {text: path for path in paths for result in paper.cells[path].results for text in result.warnings}
    found += [f"{_label(path, paper)}: {text}" for text, path in warned.items()]
    return tuple(found)
