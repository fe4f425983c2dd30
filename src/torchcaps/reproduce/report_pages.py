"""Write the report as HTML pages and as Markdown: an index of all claims, and a page for each paper."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from torchcaps.files import atomic_path, write_text
from torchcaps.html import ThemedFigure, escape_markdown, html_figure, html_page, html_table, markdown_table
from torchcaps.reproduce.report import (
    HOW_JUDGED,
    ClaimVerdicts,
    PaperReport,
    Section,
    count_verdicts,
    describe_comparison,
    describe_origin,
    describe_totals,
    describe_verdict,
    section_title,
)
from torchcaps.reproduce.spec import Profile
from torchcaps.reproduce.tables import table_to_html, table_to_markdown
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict, ComparisonResult

TITLE = "What the papers claim, and what holds"
NOT_MEASURED = "Not measured yet."
CSS_CLASSES = {"holds": "holds", "does not hold": "fails", "undecided": "open"}


def write_site(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.html and a page for each paper; return the path of index.html."""
    style = files("torchcaps.reproduce").joinpath("report.css").read_text(encoding="utf-8")
    papers = [report.spec.paper for report in reports]
    for report in reports:
        page = html_page(report.spec.paper, paper_html(report, papers), style=style)
        write_text(folder / f"{report.spec.paper}.html", page)
    write_text(folder / "index.html", html_page("what the papers claim", index_html(reports), style=style))
    return folder / "index.html"


def write_markdown(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.md, a page for each paper and the figures; return the path of index.md."""
    for report in reports:
        write_text(folder / f"{report.spec.paper}.md", paper_markdown(report, folder))
    verdicts = {report.spec.paper: report.claims for report in reports}
    parts = [f"# {TITLE}", summary_markdown(verdicts, link="{}.md"), HOW_JUDGED, claims_table(verdicts)]
    write_text(folder / "index.md", "\n\n".join(parts) + "\n")
    return folder / "index.md"


def index_html(reports: Sequence[PaperReport]) -> str:
    """Return the body of the index: all papers with all their claims."""
    results = [result for report in reports for result in report.results]
    columns = "".join(f"<th scope='col'>{title}</th>" for title in VERDICTS)
    head = [f"<th scope='col'>paper</th><td class='bar'></td>{columns}"]
    papers = "\n".join(
        f"<h2 id='{report.spec.paper}'>{_link(report)}: {html.escape(report.spec.title)}</h2>\n"
        f"<ul class='claims'>{''.join(_claim_html(report, *claim, details=False) for claim in report.claims)}</ul>"
        for report in reports
        if report.claims
    )
    return (
        f"<h1>{TITLE}</h1>\n<p class='lead'>{describe_totals([report.claims for report in reports])}</p>\n"
        f"<p>{HOW_JUDGED}</p>\n{html_table(head, map(_summary_row, reports), css_class='summary')}"
        f"{papers}\n<footer>{html.escape(describe_origin(results))}</footer>"
    )


def paper_html(report: PaperReport, papers: Sequence[str]) -> str:
    """Return the body of a paper's page: its claims with values and tests, then its tables and figures."""
    links = " ".join(f"<a href='{name}.html'>{name}</a>" for name in papers if name != report.spec.paper)
    spec = report.spec
    claims = "".join(_claim_html(report, *claim, details=True) for claim in report.claims)
    if claims:
        claims = f"<h2>Claims</h2>\n<p>{HOW_JUDGED}</p>\n<ul class='claims'>{claims}</ul>"
    sections = "\n".join(_section_html(report, section) for section in report.sections)
    return (
        f"<nav><a href='index.html'>All papers</a> {links}</nav>\n"
        f"<h1>{html.escape(spec.title)}</h1>\n<p>{html.escape(spec.authors)} ({html.escape(spec.paper)})</p>\n"
        f"<p>{html.escape(spec.about)}</p>\n{claims}\n{sections}\n"
        f"<footer>{html.escape(describe_origin(report.results))}</footer>"
    )


def _claim_html(report: PaperReport, profile: Profile, verdict: ClaimVerdict, *, details: bool) -> str:
    """Return a claim with its verdict as color, sign and words, and with its comparisons or a link to them."""
    kind = CSS_CLASSES[verdict.verdict] if verdict.measured else "missing"
    name = f"{verdict.name}-{profile}"
    statement = html.escape(verdict.claim.statement)
    if not details:
        statement = f"<a href='{report.spec.paper}.html#{name}'>{statement}</a>"
    text = f"{statement} <span class='source'>{html.escape(verdict.claim.source)}; profile {profile}</span>"
    if details:
        text += f"<ul class='findings'>{''.join(map(_comparison_html, verdict.comparisons))}</ul>"
        text += "".join(f"<p class='caution'>{html.escape(caution)}</p>" for caution in verdict.cautions)
    elif verdict.cautions and verdict.measured:
        text += " <span class='caution'>with a caution</span>"
    if verdict.note:
        text += f"<p class='note'>{html.escape(verdict.note)}</p>"
    return f"<li id='{name}'><span class='badge {kind}'>{describe_verdict(verdict)}</span><div>{text}</div></li>\n"


def _comparison_html(result: ComparisonResult) -> str:
    """Return a comparison with its values; the operators are set in bold between the names."""
    statement = html.escape(result.statement)
    for sign in ("&gt;", "&lt;", "minus"):
        statement = statement.replace(f" {sign} ", f" <b>{sign}</b> ")
    words = html.escape(describe_comparison(result))
    if result.measured:
        words = f"<b>{result.verdict}</b>{words.removeprefix(result.verdict)}"
    return f"<li>{statement}: {words}</li>"


def _section_html(report: PaperReport, section: Section) -> str:
    table = report.spec.tables[section.name]
    heading = section_title(section.name, table.title)
    parts = [f"<h2 id='{section.name}-{section.profile}'>{html.escape(heading)}</h2>"]
    if table.about:
        parts.append(f"<p>{html.escape(table.about)}</p>")
    if section.table:
        parts.append(table_to_html(section.table))
    parts += [html_figure(figure, "h3") for figure in section.figures]
    if not section.table and not section.figures:
        parts.append(f"<p>{NOT_MEASURED}</p>")
    return "\n".join(parts)


def _summary_row(report: PaperReport) -> list[str]:
    counts = count_verdicts(report.claims)
    total = len(report.claims) or 1
    bar = "".join(
        f"<span class='{CSS_CLASSES[verdict]}' style='width:{100 * counts[verdict] / total:.1f}%'></span>"
        for verdict in VERDICTS[:2]
    )
    cells = [f"<td>{counts[verdict]}</td>" for verdict in VERDICTS]
    return [f"<td>{_link(report)}</td><td class='bar'><div class='scale'>{bar}</div></td>", *cells]


def _link(report: PaperReport) -> str:
    name = html.escape(report.spec.paper)
    return f"<a href='{name}.html'>{name}</a>"


def summary_markdown(verdicts: Mapping[str, ClaimVerdicts], *, link: str) -> str:
    """Return a sentence and a table that count the verdicts of each paper; ``link`` formats a paper's name."""
    rows = []
    for paper, claims in verdicts.items():
        if claims:
            counts = count_verdicts(claims)
            rows.append([f"[{paper}]({link.format(paper)})", *(str(counts[verdict]) for verdict in VERDICTS)])
    return f"{describe_totals(verdicts.values())}\n\n{markdown_table(['paper', *VERDICTS], rows)}"


def claims_table(verdicts: Mapping[str, ClaimVerdicts]) -> str:
    """Return a Markdown table of claims: verdict, statement, place in the paper, profile."""
    rows = []
    for paper, claims in verdicts.items():
        for profile, each in claims:
            words = map(escape_markdown, (each.claim.statement, f"{paper}, {each.claim.source}"))
            rows.append([_verdict_markdown(each), *words, profile])
    return markdown_table(["verdict", "claim", "paper", "profile"], rows, align="---")


def claims_list(claims: ClaimVerdicts) -> str:
    """Return a Markdown list of claims with their comparisons, cautions and notes."""
    lines = []
    for profile, each in claims:
        statement = f"{each.claim.statement} ({each.claim.source}; profile {profile})"
        lines.append(f"- {_verdict_markdown(each)}: {escape_markdown(statement)}")
        if each.note:
            lines.append(f"    - **Note:** {escape_markdown(each.note)}")
        for result in each.comparisons:
            lines.append(f"    - {escape_markdown(result.statement)}: {escape_markdown(describe_comparison(result))}")
        lines += [f"    - Caution: {escape_markdown(caution)}" for caution in each.cautions]
    return "\n".join(lines)


def paper_markdown(report: PaperReport, folder: Path) -> str:
    """Return the page of a paper; its figures are written into the folder."""
    spec = report.spec
    title, authors, about = map(escape_markdown, (spec.title, spec.authors, spec.about))
    parts = [f"# {title}", f"{authors} ({spec.paper})", about]
    if report.claims:
        parts += ["## Claims", HOW_JUDGED, claims_list(report.claims)]
    for section in report.sections:
        parts += _section_markdown(report, section, folder)
    return "\n\n".join(filter(None, [*parts, escape_markdown(describe_origin(report.results))])) + "\n"


def _section_markdown(report: PaperReport, section: Section, folder: Path) -> list[str]:
    table = report.spec.tables[section.name]
    parts = [f"## {escape_markdown(section_title(section.name, table.title))}", escape_markdown(table.about)]
    if section.table:
        parts.append(table_to_markdown(section.table))
    for number, figure in enumerate(section.figures):
        name = f"{report.spec.paper}-{section.name}-{section.profile}-{number}"
        parts.append(_figure_markdown(figure, folder, name))
    if not section.table and not section.figures:
        parts.append(NOT_MEASURED)
    return parts


def _figure_markdown(figure: ThemedFigure, folder: Path, name: str) -> str:
    """Write both themes of a figure as files and refer to them."""
    light, dark = _save(figure.light, folder, f"{name}-light"), _save(figure.dark, folder, f"{name}-dark")
    title = escape_markdown(figure.title)
    warning = f"**{escape_markdown(figure.warning)}**\n\n" if figure.warning else ""
    return (
        f"### {title}\n\n{warning}"
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{title}" src="{light}"></picture>\n\n{escape_markdown(figure.caption)}'
    )


def _save(data_url: str, folder: Path, name: str) -> str:
    kind, _, data = data_url.removeprefix("data:image/").partition(";base64,")
    target = f"images/{name}.{'svg' if kind == 'svg+xml' else kind}"
    with atomic_path(folder / target) as temporary:
        temporary.write_bytes(base64.b64decode(data))
    return target


def _verdict_markdown(verdict: ClaimVerdict) -> str:
    """Return a verdict, in bold if it is decided."""
    words = describe_verdict(verdict)
    return words if verdict.verdict == "undecided" else f"**{words}**"
