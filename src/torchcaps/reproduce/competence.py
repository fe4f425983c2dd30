"""Check whether the networks behind a cell are good enough for it to decide a claim.

The conditions are in the spec, see ``conditions.Condition``. They are examined on results of the same profile.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from torchcaps.reproduce.claims_text import cell_label
from torchcaps.reproduce.conditions import Condition
from torchcaps.reproduce.results import PaperEvidence

FACTOR, MARGIN = 1.5, 0.5  # a network may have this many times the error of its reference, plus this many points
ROUNDING = 1e-9


NOT_MEASURED = "not measured yet"
EARLIER = "measured with earlier settings"
NEEDS = ", needs "


def evidence_gaps(path: str, paper: PaperEvidence) -> list[str]:
    """Return what is missing before a cell can decide a claim: current values, and competent networks."""
    found = paper.cells[path]
    if found.values and not found.outdated:
        return competence_gaps(path, paper)
    missing = f"{cell_label(path, paper)}: {EARLIER if found.values else NOT_MEASURED}"
    return [missing, *competence_gaps(path, paper)]


def merge_gaps(gaps: Iterable[str]) -> tuple[str, ...]:
    """Return each gap once; that a cell is missing is not said again for a condition on it."""
    found = dict.fromkeys(gaps)
    return tuple(gap for gap in found if NEEDS not in gap or gap.partition(NEEDS)[0] not in found)


def competence_gaps(path: str, paper: PaperEvidence) -> list[str]:
    """Return how the networks of a cell miss their conditions; nothing if they are competent or exempt."""
    gaps = []
    for training, condition in paper.spec.conditions(path, paper.profile).items():
        if condition is None:
            gaps.append(f"training {training} has no competence condition in profile {paper.profile}")
        elif not condition.exempt:
            gaps += _gap(condition, paper)
    return gaps


def exemptions(path: str, paper: PaperEvidence) -> list[str]:
    """Return the reasons why a cell has no competence condition."""
    found = paper.spec.conditions(path, paper.profile).values()
    return [condition.exempt for condition in found if condition and condition.exempt]


def condition_cells(path: str, paper: PaperEvidence) -> list[str]:
    """Return the cells that must be measured to examine the conditions of a cell."""
    found, left = list[str](), [path]
    while left:
        for condition in paper.spec.conditions(left.pop(), paper.profile).values():
            for each in (condition.cell, condition.as_good_as) if condition and not condition.exempt else ():
                if each is not None and each not in found:
                    found.append(each)
                    left.append(each)
    return found


def _gap(condition: Condition, paper: PaperEvidence) -> list[str]:
    """Return in a sentence how a network misses its condition; nothing if it meets it."""
    assert condition.cell is not None  # checked when the spec is loaded
    gaps, bound = _largest_error(condition, paper)
    found = measured_error(condition.cell, paper)
    label = cell_label(condition.cell, paper)
    needs = "" if bound is None else f"{NEEDS}{bound:.3g} %"
    if found is None:
        return [*gaps, f"{label}: {EARLIER if paper.cells[condition.cell].outdated else NOT_MEASURED}{needs}"]
    return gaps if bound is None or found <= bound + ROUNDING else [*gaps, f"{label}: {found:.3g} % error{needs}"]


def _largest_error(condition: Condition, paper: PaperEvidence) -> tuple[list[str], float | None]:
    """Return the largest error that meets a condition, or what is missing to know it."""
    if condition.error_at_most is not None:
        return [], condition.error_at_most
    if condition.as_good_as is None:
        cell = paper.cells[condition.cell or ""].cell
        assert cell.published is not None  # checked when the spec is loaded
        return [], FACTOR * cell.error(cell.published) + MARGIN
    gaps = competence_gaps(condition.as_good_as, paper)  # the reference must be competent itself
    reference = measured_error(condition.as_good_as, paper)
    if reference is None and not gaps:
        gaps = [f"{cell_label(condition.as_good_as, paper)}: {NOT_MEASURED}"]
    return gaps, None if reference is None else FACTOR * reference + MARGIN


def measured_error(path: str, paper: PaperEvidence) -> float | None:
    """Return the mean error of a cell over seeds in %, measured with the current settings."""
    found = paper.cells[path]
    if found.outdated or not found.values:
        return None
    return found.cell.error(statistics.fmean(found.values.values()))
