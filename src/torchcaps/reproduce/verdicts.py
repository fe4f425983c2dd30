"""Decide whether the claims of a paper hold for the measured results.

Every comparison is a weighted sum of cells that must lie above or below a bound. It is testable if all its cells are
measured with the current settings and their networks meet their competence conditions. With at least three seeds it
holds, or does not hold, if the sum differs from the bound at the 5 % level (two-sided), with p-values adjusted by
Holm's method for all comparisons of the claim; otherwise it is undecided.

A claim does not hold if one of its comparisons does not hold. Otherwise it is not testable yet if one of them is not,
holds if all of them hold, and is undecided in all other cases.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torchcaps.analysis.intervals import Interval, holm_adjust, paired_interval, proportion_interval, welch_interval
from torchcaps.reproduce.claims_text import (
    cell_weights,
    claim_cautions,
    comparison_bound,
    format_comparison,
    measure_record,
)
from torchcaps.reproduce.competence import evidence_gaps, exemptions, merge_gaps
from torchcaps.reproduce.results import Evidence, PaperEvidence
from torchcaps.reproduce.spec import Claim, ClaimComparison

Verdict = Literal["holds", "does not hold", "undecided", "not testable yet"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not testable yet")
MIN_SEEDS = 3  # fewest seeds that decide a comparison, except for counts
LEVEL = 0.05  # of the two-sided test
COUNTED = "counted"  # the test of exact values
NUMBERS = {1: "one seed", 2: "two seeds"}  # too few to decide
SMALLEST_P = 0.0001  # printed


@dataclass(frozen=True)
class ComparisonResult:
    """The result of one comparison.

    Args:
        statement: the comparison in words.
        verdict: its outcome.
        test: the name of the test, or why there is none.
        interval: 95 % interval of the weighted sum, without correction.
        unit: of the interval.
        margin: distance from the bound; positive on the side on which the comparison holds.
        p: two-sided p-value, adjusted for all comparisons of the claim; None if it is not tested.
        seeds: fewest seeds of its cells.
        gaps: what is missing before it can be tested.
        exempt: why cells have no competence condition.
        conditional: whether any cell has a competence condition.
        measured: whether all its cells have values.
    """

    statement: str
    verdict: Verdict = "not testable yet"
    test: str = ""
    interval: Interval | None = None
    unit: str = ""
    margin: float = 0.0
    p: float | None = None
    seeds: int = 0
    gaps: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()
    conditional: bool = True
    measured: bool = False

    @property
    def few_seeds(self) -> str:
        """'one seed' or 'two seeds' if that is why the comparison is undecided."""
        return NUMBERS.get(self.seeds, "") if self.verdict == "undecided" and self.test != COUNTED else ""


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

    @property
    def conditional(self) -> bool:
        """Whether the claim presupposes accurate networks."""
        return any(result.conditional for result in self.comparisons)

    @property
    def few_seeds(self) -> str:
        """'one seed' or 'two seeds' if all that is undecided lacks seeds."""
        found = {result.few_seeds for result in self.comparisons if result.verdict == "undecided"}
        return min(found, default="") if self.verdict == "undecided" else ""

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing before the claim can be tested, if it cannot be."""
        found = merge_gaps(gap for result in self.comparisons for gap in result.gaps)
        return found if self.verdict == "not testable yet" else ()


def judge_claim(name: str, paper: PaperEvidence) -> ClaimVerdict:
    """Judge one claim of a paper."""
    claim = paper.spec.claims[name]
    tested = [examine_comparison(comparison, paper) for comparison in claim.comparisons]
    # Counts have no p-value. Comparisons that cannot be tested yet belong to the family all the same.
    family = [place for place, each in enumerate(tested) if each.test != COUNTED]
    p_values = [tested[place].p for place in family]
    adjusted = holm_adjust([1.0 if p is None else p for p in p_values])
    for place, p in zip(family, adjusted, strict=True):
        if tested[place].p is not None:
            tested[place] = _decide(replace(tested[place], p=p), len(family))
    verdicts = {result.verdict for result in tested}
    verdict: Verdict = "undecided"
    if "does not hold" in verdicts:
        verdict = "does not hold"
    elif "not testable yet" in verdicts:
        verdict = "not testable yet"
    elif verdicts == {"holds"}:
        verdict = "holds"
    cautions = claim_cautions(claim, paper)
    return ClaimVerdict(name, claim, verdict, tuple(tested), cautions, paper.notes.get(name, ""))


def examine_comparison(comparison: ClaimComparison, paper: PaperEvidence) -> ComparisonResult:
    """Test one comparison on the measured cells, before the correction for multiple testing."""
    weights = {path: weight for path, weight in cell_weights(comparison).items() if weight}
    cells = [paper.cells[path] for path in weights]
    gaps = [gap for path in weights for gap in evidence_gaps(path, paper)]
    exempt = {path: exemptions(path, paper) for path in weights}
    found = ComparisonResult(
        format_comparison(comparison, paper),
        gaps=merge_gaps(gaps),
        exempt=tuple(dict.fromkeys(reason for reasons in exempt.values() for reason in reasons)),
        conditional=not all(exempt.values()),
        measured=all(cell.values for cell in cells),
    )
    if gaps:
        return found
    interval, test = _interval(list(weights.values()), cells)
    seeds = min(len(cell.values) for cell in cells)
    if interval is None:
        return replace(found, verdict="undecided", test=test, seeds=seeds)
    bound, sign = comparison_bound(comparison)
    unit = cells[0].results[0].unit
    found = replace(
        found,
        verdict="undecided",
        test=test,
        interval=interval,
        unit="points" if unit == "%" and len(cells) > 1 else unit,
        margin=sign * (interval.center - bound),
        seeds=seeds,
    )
    if test == COUNTED:
        return replace(found, verdict=_side(found))
    return replace(found, p=interval.p_value(bound)) if seeds >= MIN_SEEDS else found


def _decide(found: ComparisonResult, comparisons: int) -> ComparisonResult:
    """Return the outcome of a comparison with its adjusted p-value."""
    assert found.p is not None
    several = f", Holm-adjusted for {comparisons} comparisons" if comparisons > 1 else ""
    shown = f"p = {found.p:.2g}" if found.p >= SMALLEST_P else f"p < {SMALLEST_P}"
    verdict = _side(found) if found.p < LEVEL else "undecided"
    return replace(found, verdict=verdict, test=f"{found.test}, {shown}{several}")


def _side(found: ComparisonResult) -> Verdict:
    return "holds" if found.margin > 0 else "does not hold" if found.margin < 0 else "undecided"


def _interval(weights: Sequence[float], cells: Sequence[Evidence]) -> tuple[Interval | None, str]:
    """Return the interval of a weighted sum of cells, and the name of the test."""
    samples = [list(cell.values.values()) for cell in cells]
    if all(_exact(cell) for cell in cells):
        center = sum(weight * sample[0] for weight, sample in zip(weights, samples, strict=True))
        return Interval(center, center, center), COUNTED
    images = [cell.images for cell in cells]
    spread = any(len(set(sample)) > 1 for sample in samples)
    shares = [count for count in images if count is not None]
    all_shares = len(shares) == len(cells)
    if all(len(sample) >= MIN_SEEDS for sample in samples) and (spread or not all_shares):
        return _over_seeds(weights, cells, samples)
    if not all_shares:
        return None, f"fewer than {MIN_SEEDS} seeds"
    means = [statistics.fmean(sample) / 100 for sample in samples]
    found = proportion_interval(weights, means, shares)
    percent = Interval(100 * found.center, 100 * found.low, 100 * found.high, 100 * found.deviation)
    counted = f"{min(shares):,}" if min(shares) == max(shares) else f"{min(shares):,} to {max(shares):,}"
    fewest = min(map(len, samples))
    reason = NUMBERS.get(fewest, "the seeds do not differ at all")
    return percent, f"normal interval over {counted} images: {reason}"


def _exact(evidence: Evidence) -> bool:
    """Whether a value is counted, not estimated."""
    record = measure_record(evidence.cell)
    return record is not None and record.exact


def _over_seeds(
    weights: Sequence[float], cells: Sequence[Evidence], samples: Sequence[Sequence[float]]
) -> tuple[Interval, str]:
    seeds = [list(cell.values) for cell in cells]
    if all(each == seeds[0] for each in seeds):
        name = "paired t interval" if len(cells) > 1 else "t interval"
        return paired_interval(weights, samples), f"{name} over {len(seeds[0])} seeds"
    counts = sorted({len(each) for each in seeds})
    return welch_interval(weights, samples), f"Welch's t interval over {' and '.join(map(str, counts))} seeds"
