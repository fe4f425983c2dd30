"""A paper's tables with our numbers in them: rows, columns, both values in every cell, and footnotes."""

from __future__ import annotations

import html
import statistics
from dataclasses import dataclass, field

from torchcaps.reproduce.claims_text import describe_conditions, describe_measures, measure_record
from torchcaps.reproduce.intervals import mean_interval
from torchcaps.reproduce.results import Evidence, PaperEvidence

DASH = "—"
DECIMALS = {"%": 2, "points": 2, "ratio": 3, "nats": 4, "count": 0}
WIDE = 5  # more columns than this, and than rows, are turned into rows: no phone and no sheet of paper is wider
NARROW = 3  # columns that leave room for the paper's value beside ours
READING = "Each value is the mean ± half of its 95 % interval over seeds (Student's t), or that of a single seed."


@dataclass(frozen=True)
class TableCell:
    """One cell as it is printed."""

    ours: str
    paper: str = ""
    notes: tuple[int, ...] = ()  # numbers of footnotes


@dataclass
class PrintedTable:
    """A table as it is printed; a place without a cell is None."""

    columns: list[str]
    rows: dict[str, list[TableCell | None]]
    caption: str
    how: list[str]
    footnotes: list[str] = field(default_factory=list)

    def mark(self, text: str) -> int:
        """The number of a footnote; what is said twice has one number."""
        if text not in self.footnotes:
            self.footnotes.append(text)
        return self.footnotes.index(text) + 1


def build_table(paper: PaperEvidence, name: str) -> PrintedTable | None:
    """A table or figure of a paper as a table of numbers; None where there is no number to print."""
    table = paper.spec.tables[name]
    cells = {cell: paper.cells[f"{name}/{cell}"] for cell in table.cells}
    shown = [each for each in cells.values() if _has_place(table.kind, each)]
    if not shown:
        return None
    columns = {each.cell.column: _head(each.cell.column, shown) for each in shown}
    rows = {each.cell.row: each.cell.row for each in shown}
    turned = len(columns) > max(WIDE, len(rows))
    across, down = (rows, columns) if turned else (columns, rows)
    caption = f"{describe_conditions(paper.profile, shown)} {READING}"
    printed = PrintedTable(list(across.values()), {}, caption, describe_measures(shown))
    common = statistics.mode([len(each.results) for each in shown if each.results] or [0])
    for each in shown:
        places = (each.cell.column, each.cell.row) if turned else (each.cell.row, each.cell.column)
        row = printed.rows.setdefault(down[places[0]], [None] * len(across))
        row[list(across).index(places[1])] = _table_cell(each, paper, common, printed)
    return printed


def format_value(value: float, unit: str) -> str:
    """A measured number with as many digits as its unit deserves."""
    return f"{value:,.{DECIMALS[unit]}f}" if unit in DECIMALS else f"{value:.4g}"


def format_published(value: float) -> str:
    """A number as the paper printed it; large ones in groups of three digits.

    >>> show_published(99.22), show_published(66.0), show_published(13500000)
    ('99.22', '66', '13,500,000')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.10g}"


def table_to_markdown(table: PrintedTable) -> str:
    """The table in Markdown, with its caption and footnotes below."""
    lines = [["", *map(escape_markdown, table.columns)], ["---", *["---:"] * len(table.columns)]]
    for row, cells in table.rows.items():
        lines.append([escape_markdown(row), *(_markdown_cell(cell) for cell in cells)])
    parts = ["\n".join(f"| {' | '.join(line)} |" for line in lines), escape_markdown(table.caption)]
    parts.append("\n".join(f"{k}. {escape_markdown(note)}" for k, note in enumerate(table.footnotes, 1)))
    parts.append("\n".join(f"- {escape_markdown(text)}" for text in table.how))
    return "\n\n".join(filter(None, parts)) + "\n"


def table_to_html(table: PrintedTable) -> str:
    """The table in HTML, with its caption and footnotes below."""
    head = "".join(f"<th scope='col'>{html.escape(column)}</th>" for column in table.columns)
    body = "".join(
        f"<tr><th scope='row'>{html.escape(row)}</th>{''.join(map(_html_cell, cells))}</tr>\n"
        for row, cells in table.rows.items()
    )
    how = "".join(f"<li>{html.escape(text)}</li>" for text in table.how)
    kind = "paper narrow" if len(table.columns) <= NARROW and _all_published(table) else "paper"
    notes = "".join(f"<li>{html.escape(text)}</li>" for text in table.footnotes)
    return (
        f"<div class='table'><table class='{kind}'><thead><tr><td></td>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>\n"
        f"<p class='caption'>{html.escape(table.caption)}</p>\n"
        + (f"<ol class='notes'>{notes}</ol>\n" if notes else "")
        + (f"<ul class='how'>{how}</ul>\n" if how else "")
    )


def escape_markdown(text: str) -> str:
    """Text that means nothing to Markdown."""
    escaped = html.escape(text, quote=False)
    for sign in "\\|*_`[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


def _has_place(kind: str, each: Evidence) -> bool:
    """Whether a cell has a number or waits for one; of a figure's cells nobody knows before they are measured."""
    waits = kind == "table" and each.cell.measure is not None and not each.results
    return bool(each.values) or each.cell.published is not None or waits


def _head(column: str, cells: list[Evidence]) -> str:
    """A column's name with the unit that all its values have; the unit stays with the last word."""
    records = [measure_record(each.cell) for each in cells if each.cell.column == column]
    units = {record.unit for record in records if record}
    return f"{column},\N{NO-BREAK SPACE}{units.pop()}" if len(units) == 1 and units != {"count"} else column


def _table_cell(each: Evidence, paper: PaperEvidence, common: int, printed: PrintedTable) -> TableCell:
    published = format_published(each.cell.published) if each.cell.published is not None else ""
    notes = [each.cell.note] if each.cell.note else []
    if each.cell.measure is None:
        return TableCell("cited", published, tuple(map(printed.mark, notes)))
    if each.outdated:
        notes.append("Made by earlier settings of this cell; it has not been measured anew.")
    notes += [f"Failed with seed {result.seed}: {result.error}" for result in each.failures]
    notes += dict.fromkeys(text for result in each.results for text in result.warnings)
    values = list(each.values.values())
    if not values:
        if paper.profile not in each.cell.profiles:
            notes.append(f"Not part of profile {paper.profile}.")
        return TableCell(DASH, published, tuple(map(printed.mark, notes)))
    if len(values) != common:
        notes.append(f"{len(values)} seed{'s' if len(values) > 1 else ''}.")
    unit = each.results[0].unit
    ours = format_value(statistics.fmean(values), unit)
    if len(values) > 1 and unit != "count":
        ours += f" ± {format_value(mean_interval(values).half_width, unit)}"
    return TableCell(ours, published, tuple(dict.fromkeys(map(printed.mark, notes))))


def _markdown_cell(cell: TableCell | None) -> str:
    if cell is None:
        return ""
    marks = f"<sup>{','.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    return f"{cell.ours}{marks} (paper {cell.paper})" if cell.paper else cell.ours + marks


def _all_published(table: PrintedTable) -> bool:
    """Whether the paper has a value in every column: room for one that has none would only push ours from its head."""
    return all(any(cell and cell.paper for cell in column) for column in zip(*table.rows.values(), strict=True))


def _html_cell(cell: TableCell | None) -> str:
    if cell is None:
        return "<td></td>"
    marks = f"<sup>{','.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    paper = f"paper {cell.paper}" if cell.paper else ""
    kind = " class='open'" if cell.ours in (DASH, "cited") else ""
    return f"<td{kind}><span>{cell.ours}{marks}</span><small>{paper}</small></td>"
