"""Decide whether the claims of a paper hold for the measured results.

Every comparison is a weighted sum of cells that must lie above or below a bound. It holds if its whole 95 % interval
lies on the right side, does not hold if all of it lies on the other side, and is otherwise undecided. A claim holds if
all its comparisons do, and does not hold if one of them does not. Each comparison is tested at 95 % without correction
for multiple testing: a claim of several comparisons is harder to confirm. The probability that one of k comparisons
fails by chance is up to k times 2.5 %; a claim of several comparisons that does not hold says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchcaps.reproduce.claims_text import (
    cell_label,
    cell_weights,
    claim_cautions,
    comparison_bound,
    format_comparison,
)
from torchcaps.reproduce.intervals import Interval, paired_interval, proportion_interval, welch_interval
from torchcaps.reproduce.results import Evidence, PaperEvidence
from torchcaps.reproduce.spec import Claim, ClaimComparison

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided")
EXACT = "count"  # unit of values that are counted, not estimated
MIN_SEEDS = 3  # fewest seeds for an interval over seeds


@dataclass(frozen=True)
class ComparisonResult:
    """The result of one comparison: statement, verdict and test."""

    statement: str
    verdict: Verdict
    test: str  # name of the test, or why there is none
    interval: Interval | None = None  # of the weighted sum
    unit: str = ""
    measured: bool = True


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict, comparisons and cautions."""

    name: str
    claim: Claim
    verdict: Verdict
    comparisons: tuple[ComparisonResult, ...]
    cautions: tuple[str, ...]
    note: str  # our note, from the results folder

    @property
    def measured(self) -> bool:
        """Whether any comparison has results."""
        return any(result.measured for result in self.comparisons)


def judge_claim(name: str, paper: PaperEvidence) -> ClaimVerdict:
    """Judge one claim of a paper."""
    claim = paper.spec.claims[name]
    comparisons = tuple(evaluate_comparison(comparison, paper) for comparison in claim.comparisons)
    verdicts = {result.verdict for result in comparisons}
    verdict: Verdict = "undecided"
    if "does not hold" in verdicts:
        verdict = "does not hold"
    elif verdicts == {"holds"}:
        verdict = "holds"
    cautions = claim_cautions(claim, paper)
    several = len(comparisons)
    if verdict == "does not hold" and several > 1:
        chance = f"{several} comparisons at 95 % each: that one fails by chance alone has a probability of up to"
        cautions += (f"{chance} {2.5 * several:g} %",)
    return ClaimVerdict(name, claim, verdict, comparisons, cautions, paper.notes.get(name, ""))


def evaluate_comparison(comparison: ClaimComparison, paper: PaperEvidence) -> ComparisonResult:
    """Test one comparison on the measured cells."""
    statement = format_comparison(comparison, paper)
    weights = {path: weight for path, weight in cell_weights(comparison).items() if weight}
    missing = [cell_label(path, paper) for path in weights if not paper.cells[path].values]
    if missing:
        which = f": {', '.join(missing)}" if len(missing) < len(weights) else ""
        return ComparisonResult(statement, "undecided", f"not measured yet{which}", measured=False)
    cells = [paper.cells[path] for path in weights]
    interval, test = _interval(list(weights.values()), cells)
    if interval is None:
        return ComparisonResult(statement, "undecided", test)
    bound, sign = comparison_bound(comparison)
    low, high = sorted((sign * (interval.low - bound), sign * (interval.high - bound)))
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
    unit = cells[0].results[0].unit
    return ComparisonResult(statement, verdict, test, interval, "points" if unit == "%" and len(cells) > 1 else unit)


def _interval(weights: Sequence[float], cells: Sequence[Evidence]) -> tuple[Interval | None, str]:
    """Return the interval of a weighted sum of cells, and the name of the test."""
    samples = [list(cell.values.values()) for cell in cells]
    if all(cell.results[0].unit == EXACT for cell in cells):
        center = sum(weight * sample[0] for weight, sample in zip(weights, samples, strict=True))
        return Interval(center, center, center), "counted"
    images = [cell.images for cell in cells]
    spread = any(len(set(sample)) > 1 for sample in samples)
    shares = [count for count in images if count is not None]
    all_shares = len(shares) == len(cells)
    if all(len(sample) >= MIN_SEEDS for sample in samples) and (spread or not all_shares):
        return _over_seeds(weights, cells, samples)
    if not all_shares:
        return None, f"fewer than {MIN_SEEDS} seeds of a value that is no share of images"
    means = [statistics.fmean(sample) / 100 for sample in samples]
    found = proportion_interval(weights, means, shares)
    percent = Interval(100 * found.center, 100 * found.low, 100 * found.high)
    counted = f"{min(shares):,}" if min(shares) == max(shares) else f"{min(shares):,} to {max(shares):,}"
    fewest = min(map(len, samples))
    few = "seeds were not repeated" if fewest == 1 else f"only {fewest} seeds"
    reason = few if fewest < MIN_SEEDS else "the seeds do not differ at all"
    return percent, f"normal interval over {counted} images: {reason}"


def _over_seeds(
    weights: Sequence[float], cells: Sequence[Evidence], samples: Sequence[Sequence[float]]
) -> tuple[Interval, str]:
    seeds = [list(cell.values) for cell in cells]
    if all(each == seeds[0] for each in seeds):
        name = "paired t interval" if len(cells) > 1 else "t interval"
        return paired_interval(weights, samples), f"{name} over {len(seeds[0])} seeds"
    counts = sorted({len(each) for each in seeds})
    return welch_interval(weights, samples), f"Welch's t interval over {' and '.join(map(str, counts))} seeds"
