"""Claims as formulas and in words: which cells count how often, what must be above what, and what to be careful of."""

from __future__ import annotations

from torchcaps.reproduce.captions import table_label
from torchcaps.reproduce.evidence import PaperEvidence
from torchcaps.reproduce.spec import Claim, Comparison


def claimed_cells(claim: Claim) -> list[str]:
    """Every cell that a claim speaks about, once."""
    return list(dict.fromkeys(path for comparison in claim.comparisons for path in cell_weights(comparison)))


def cell_weights(comparison: Comparison) -> dict[str, float]:
    """How often each cell counts in the sum that is held against the bound; the greater term counts positively."""
    found: dict[str, float] = {}
    for term, sign in zip(comparison.terms(), (1.0, -1.0), strict=False):
        for path, part in zip(term, (sign, -sign), strict=False):
            found[path] = found.get(path, 0.0) + part
    return found


def find_bound(comparison: Comparison) -> tuple[float, float]:
    """What the sum is held against, and on which side of it the right one is: 1 above, -1 below."""
    if comparison.greater:
        return 0.0, 1.0
    return (comparison.above[1], 1.0) if comparison.above else ((comparison.below or ("", 0.0))[1], -1.0)


def cell_label(path: str, paper: PaperEvidence) -> str:
    """A cell as a reader knows it: its row and column."""
    cell = paper.cells[path].cell
    return f"{cell.row} ({cell.column})"


def state(comparison: Comparison, paper: PaperEvidence) -> str:
    """The comparison as a formula of rows or of columns, whichever differ; what is common stands once, at its end."""
    paths = list(cell_weights(comparison))
    cells = {path: paper.cells[path].cell for path in paths}
    where = ", " + " and ".join(dict.fromkeys(table_label(path.partition("/")[0]) for path in paths))
    names = {path: cell_label(path, paper) for path in paths}
    if len({cell.column for cell in cells.values()}) == 1:
        names, where = {path: cell.row for path, cell in cells.items()}, f" ({cells[paths[0]].column}{where})"
    elif len({cell.row for cell in cells.values()}) == 1:
        names, where = {path: cell.column for path, cell in cells.items()}, f" ({cells[paths[0]].row}{where})"
    terms = [" minus ".join(names[path] for path in term) for term in comparison.terms()]
    if not comparison.greater:
        terms.append(f"{find_bound(comparison)[0]:g}")
    sign = "<" if comparison.below else ">"
    return f" {sign} ".join(terms) + where


def find_cautions(claim: Claim, paper: PaperEvidence) -> tuple[str, ...]:
    """What stands between the numbers of a claim and belief in it."""
    paths = claimed_cells(claim)
    old = [cell_label(path, paper) for path in paths if paper.cells[path].outdated]
    words = "all of it" if len(old) == len(paths) else ", ".join(old)
    found = [f"made by earlier settings: {words}"] if old else []
    said: dict[str, list[str]] = {}
    for path in paths:
        failed = [f"failed: {result.error}" for result in paper.cells[path].failures]
        warned = [text for result in paper.cells[path].results for text in result.warnings]
        for text in dict.fromkeys(failed + warned):
            said.setdefault(text, []).append(cell_label(path, paper))
    return (*found, *(f"{', '.join(cells)}: {text}" for text, cells in said.items()))
