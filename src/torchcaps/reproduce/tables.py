"""Tables of a paper with the measured and the published value in every cell, as Markdown and HTML."""

from __future__ import annotations

import html
import statistics
from dataclasses import dataclass, field

from torchcaps.analysis.intervals import mean_interval
from torchcaps.html import escape_markdown, html_cell, html_list, html_table, markdown_table
from torchcaps.reproduce.claims_text import describe_conditions, describe_measures, measure_record
from torchcaps.reproduce.competence import competence_gaps
from torchcaps.reproduce.results import Evidence, PaperEvidence
from torchcaps.reproduce.spec import SMOKE

DASH, CITED = "—", "cited"
DECIMALS = {"%": 2, "points": 2, "ratio": 3, "nats": 4, "count": 0}
MAX_COLUMNS = 5  # a table with more columns than this and than rows is transposed, so that it fits a page
NARROW = 3  # up to this many columns, the published value stands beside the measured one
READING = "Each value is the mean ± half of its 95 % interval over seeds (Student's t), or that of a single seed."


@dataclass(frozen=True)
class TableCell:
    """A printed cell: the measured value, the published value, and the numbers of its footnotes."""

    ours: str
    paper: str = ""
    notes: tuple[int, ...] = ()


@dataclass
class PrintedTable:
    """A table ready for printing; None marks an empty position."""

    columns: list[str]
    rows: dict[str, list[TableCell | None]]
    caption: str
    how: list[str]
    footnotes: list[str] = field(default_factory=list)

    @property
    def has_values(self) -> bool:
        """Whether a cell has a measured value."""
        return any(cell and cell.ours not in (DASH, CITED) for row in self.rows.values() for cell in row)

    def footnote(self, text: str) -> int:
        """Return the number of a footnote, adding it if it is new."""
        if text not in self.footnotes:
            self.footnotes.append(text)
        return self.footnotes.index(text) + 1


def build_table(paper: PaperEvidence, name: str) -> PrintedTable | None:
    """Build the table of values of a table or figure; None if there is no value to print."""
    table = paper.spec.tables[name]
    cells = {f"{name}/{cell}": paper.cells[f"{name}/{cell}"] for cell in table.cells}
    cells = {path: each for path, each in cells.items() if _is_shown(table.kind, each)}
    shown = list(cells.values())
    if not shown:
        return None
    columns = {each.cell.column: _column_title(each.cell.column, shown) for each in shown}
    rows = {each.cell.row: each.cell.row for each in shown}
    transposed = len(columns) > max(MAX_COLUMNS, len(rows))
    across, down = (rows, columns) if transposed else (columns, rows)
    caption = f"{describe_conditions(paper.profile, shown)} {READING}"
    printed = PrintedTable(list(across.values()), {}, caption, describe_measures(shown))
    common = statistics.mode([len(each.results) for each in shown if each.results] or [0])
    for path, each in cells.items():
        places = (each.cell.column, each.cell.row) if transposed else (each.cell.row, each.cell.column)
        # In the smoke profile most networks are not competent, and the table says so as a whole.
        gaps = competence_gaps(path, paper) if each.results and paper.profile != SMOKE else []
        row = printed.rows.setdefault(down[places[0]], [None] * len(across))
        row[list(across).index(places[1])] = _table_cell(each, paper, common, printed, gaps)
    return printed


def format_value(value: float, unit: str) -> str:
    """Format a measured value with the number of digits that suits its unit."""
    return f"{value:,.{DECIMALS[unit]}f}" if unit in DECIMALS else f"{value:.4g}"


def format_published(value: float) -> str:
    """Format a published value with the digits of the paper, and with thousands separators.

    >>> format_published(99.22), format_published(66.0), format_published(13500000)
    ('99.22', '66', '13,500,000')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.10g}"


def table_to_markdown(table: PrintedTable) -> str:
    """Return the table in Markdown, followed by its caption, footnotes and measures."""
    head = ["", *map(escape_markdown, table.columns)]
    rows = [[escape_markdown(row), *map(_markdown_cell, cells)] for row, cells in table.rows.items()]
    parts = [markdown_table(head, rows), escape_markdown(table.caption)]
    parts.append("\n".join(f"{k}. {escape_markdown(note)}" for k, note in enumerate(table.footnotes, 1)))
    # Without something between them, Python-Markdown continues the numbers of the footnotes.
    parts.append("<!-- measures -->" if table.footnotes and table.how else "")
    parts.append("\n".join(f"- {escape_markdown(text)}" for text in table.how))
    return "\n\n".join(filter(None, parts)) + "\n"


def table_to_html(table: PrintedTable) -> str:
    """Return the table in HTML, followed by its caption, footnotes and measures."""
    kind = "paper narrow" if len(table.columns) <= NARROW and _all_published(table) else "paper"
    head = ["<td></td>", *(html_cell(column, scope="col") for column in table.columns)]
    rows = ([html_cell(row, scope="row"), *map(_html_cell, cells)] for row, cells in table.rows.items())
    return (
        html_table(head, rows, css_class=kind)
        + f"<p class='caption'>{html.escape(table.caption)}</p>\n"
        + html_list(table.footnotes, tag="ol", css_class="notes")
        + html_list(table.how, css_class="how")
    )


def _is_shown(kind: str, each: Evidence) -> bool:
    """Whether a cell is shown: it has a value or, in a table, will have one."""
    pending = kind == "table" and each.cell.measure is not None and not each.results
    return bool(each.values) or each.cell.published is not None or pending


def _column_title(column: str, cells: list[Evidence]) -> str:
    """Return a column's title with the common unit of its values, joined by a no-break space."""
    records = [measure_record(each.cell) for each in cells if each.cell.column == column]
    units = {record.unit for record in records if record}
    return f"{column},\N{NO-BREAK SPACE}{units.pop()}" if len(units) == 1 and units != {"count"} else column


def _table_cell(each: Evidence, paper: PaperEvidence, common: int, printed: PrintedTable, gaps: list[str]) -> TableCell:
    published = format_published(each.cell.published) if each.cell.published is not None else ""
    notes = [each.cell.note] if each.cell.note else []
    if each.cell.measure is None:
        return TableCell(CITED, published, tuple(map(printed.footnote, notes)))
    if each.outdated:
        notes.append("Measured with earlier settings of this cell.")
    notes += [f"Not competent: {gap}." for gap in gaps]
    notes += [f"Failed with seed {result.seed}: {result.error}" for result in each.failures]
    notes += dict.fromkeys(text for result in each.results for text in result.warnings)
    values = list(each.values.values())
    if not values:
        if paper.profile not in each.cell.profiles:
            notes.append(f"Not part of profile {paper.profile}.")
        return TableCell(DASH, published, tuple(map(printed.footnote, notes)))
    if len(values) != common:
        notes.append(f"{len(values)} seed{'s' if len(values) > 1 else ''}.")
    unit = each.results[0].unit
    ours = format_value(statistics.fmean(values), unit)
    if len(values) > 1 and unit != "count":
        ours += f" ± {format_value(mean_interval(values).half_width, unit)}"
    return TableCell(ours, published, tuple(dict.fromkeys(map(printed.footnote, notes))))


def _markdown_cell(cell: TableCell | None) -> str:
    if cell is None:
        return ""
    marks = f"<sup>{','.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    return f"{cell.ours}{marks} (paper {cell.paper})" if cell.paper else cell.ours + marks


def _all_published(table: PrintedTable) -> bool:
    """Whether every column has a published value."""
    return all(any(cell and cell.paper for cell in column) for column in zip(*table.rows.values(), strict=True))


def _html_cell(cell: TableCell | None) -> str:
    if cell is None:
        return "<td></td>"
    marks = f"<sup>{','.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    paper = f"paper {cell.paper}" if cell.paper else ""
    kind = " class='open'" if cell.ours in (DASH, CITED) else ""
    return f"<td{kind}><span>{cell.ours}{marks}</span><small>{paper}</small></td>"
