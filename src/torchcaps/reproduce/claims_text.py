"""Captions of tables and figures, and claims as formulas and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from torchcaps.reproduce.estimate import format_duration
from torchcaps.reproduce.measures import MeasureRecord, measures
from torchcaps.reproduce.results import CellResult, Evidence, PaperEvidence
from torchcaps.reproduce.spec import Cell, Claim, ClaimComparison, Profile


def measure_record(cell: Cell) -> MeasureRecord | None:
    """Return the record of a cell's measure, or None if it has none or an unknown one."""
    return measures.get(cell.measure) if cell.measure in measures else None  # type: ignore[arg-type]


def table_label(name: str) -> str:
    """Return the paper's name of a table.

    >>> table_label("table1"), table_label("fig3"), table_label("black-box"), table_label("table1-longer")
    ('Table 1', 'Figure 3', 'Black box', 'Table 1, longer')
    """
    numbered = re.fullmatch(r"(table|fig)(\d+)(?:-(.+))?", name)
    if numbered is None:
        return name.replace("-", " ").capitalize()
    return f"{'Table' if numbered[1] == 'table' else 'Figure'} {numbered[2]}{f', {numbered[3]}' if numbered[3] else ''}"


def describe_conditions(profile: Profile, cells: Iterable[Evidence]) -> str:
    """Describe profile, number of seeds, training budget and checkpoint selection."""
    found = [cell for cell in cells if cell.results]
    if not found:
        return "Not measured yet."
    seeds = [len(cell.results) for cell in found]
    results = [result for cell in found for result in cell.results]
    parts = [f"Profile {profile}", f"{_range(seeds)} seed{'s' if max(seeds) > 1 else ''}", *_budget(results)]
    return f"{', '.join(parts)}.{_selection(results)}"


def describe_measures(cells: Iterable[Evidence]) -> list[str]:
    """Describe each measure: name, unit and how the value is computed."""
    found = filter(None, (measure_record(each.cell) for each in cells))
    return [f"{record.name} ({record.unit}): {record.how}." for record in dict.fromkeys(found)]


def _budget(results: Sequence[CellResult]) -> list[str]:
    """Describe training images, epochs and training time."""
    trainings = [result.training for result in results if result.training and result.training_seconds is not None]
    parts = []
    if trainings:
        images = [each.get("train_images") for each in trainings]
        counted = [count for count in images if count]
        words = f"{_range(counted)} training images" if len(counted) == len(images) else "all training images"
        if 0 < len(counted) < len(images):
            words = f"from {min(counted):,} up to all training images"
        early = any(each.get("stop_at_accuracy") or each.get("steps") for each in trainings)
        epochs = [each["epochs"] for each in trainings]
        passes = f"{_range(epochs)} epoch{'s' if max(epochs) > 1 else ''}{' at most' if early else ''}"
        parts.append(f"{words}, {passes}")
    seconds = [result.training_seconds for result in results if result.training_seconds]
    if seconds:
        parts.append(f"{_range([round(each) for each in seconds], format_duration)} of training a run")
    return parts


def _selection(results: Sequence[CellResult]) -> str:
    splits = sorted({result.selection_split for result in results if result.selection_split})
    return f" The checkpoint was chosen on {' or '.join(splits)} images." if splits else ""


def _range(values: Sequence[int], show: Callable[[float], str] = "{:,}".format) -> str:
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def claimed_cells(claim: Claim) -> list[str]:
    """Return all cells that a claim refers to, without repetition."""
    return list(dict.fromkeys(path for comparison in claim.comparisons for path in cell_weights(comparison)))


def cell_weights(comparison: ClaimComparison) -> dict[str, float]:
    """Return the weight of each cell in the sum that is compared with the bound."""
    found: dict[str, float] = {}
    for term, sign in zip(comparison.weighted_terms(), (1.0, -1.0), strict=False):
        for (factor, path), part in zip(term, (sign, -sign), strict=False):
            found[path] = found.get(path, 0.0) + factor * part
    return found


def comparison_bound(comparison: ClaimComparison) -> tuple[float, float]:
    """Return the bound of the sum, and the side on which the claim holds: 1 above, -1 below."""
    if comparison.greater:
        return 0.0, 1.0
    return (comparison.above[1], 1.0) if comparison.above else ((comparison.below or ("", 0.0))[1], -1.0)


def cell_label(path: str, paper: PaperEvidence) -> str:
    """Return a cell's row, and its column if the table has several."""
    cell = paper.cells[path].cell
    columns = {each.column for each in paper.spec.tables[path.partition("/")[0]].cells.values()}
    return f"{cell.row} ({cell.column})" if len(columns) > 1 else cell.row


def format_comparison(comparison: ClaimComparison, paper: PaperEvidence) -> str:
    """Format a comparison by the rows or columns that differ; what they have in common follows in parentheses."""
    paths = list(cell_weights(comparison))
    cells = {path: paper.cells[path].cell for path in paths}
    where = ", " + " and ".join(dict.fromkeys(table_label(path.partition("/")[0]) for path in paths))
    names = {path: cell_label(path, paper) for path in paths}
    if len({cell.column for cell in cells.values()}) == 1:
        names, where = {path: cell.row for path, cell in cells.items()}, f" ({cells[paths[0]].column}{where})"
    elif len({cell.row for cell in cells.values()}) == 1:
        names, where = {path: cell.column for path, cell in cells.items()}, f" ({cells[paths[0]].row}{where})"
    terms = [
        " minus ".join(names[path] if factor == 1 else f"{factor:g} times {names[path]}" for factor, path in term)
        for term in comparison.weighted_terms()
    ]
    if not comparison.greater:
        terms.append(f"{comparison_bound(comparison)[0]:g}")
    sign = "<" if comparison.below else ">"
    return f" {sign} ".join(terms) + where


def claim_cautions(claim: Claim, paper: PaperEvidence) -> tuple[str, ...]:
    """Return warnings about a claim's cells: failures and warnings of the measures."""
    said: dict[str, list[str]] = {}
    for path in claimed_cells(claim):
        failed = [f"failed: {result.error}" for result in paper.cells[path].failures]
        warned = [text for result in paper.cells[path].results for text in result.warnings]
        for text in dict.fromkeys(failed + warned):
            said.setdefault(text, []).append(cell_label(path, paper))
    return tuple(f"{', '.join(cells)}: {text}" for text, cells in said.items())


def untestable_title(count: int) -> str:
    """Return the title under which claims that are not testable yet are folded.

    >>> untestable_title(1), untestable_title(2)
    ('1 claim is not testable yet', '2 claims are not testable yet')
    """
    return f"{count} claim{' is' if count == 1 else 's are'} not testable yet"
