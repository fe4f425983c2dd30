"""The report as HTML pages: an index of all claims, and a page for each paper."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from torchcaps.files import write_text
from torchcaps.html import html_figure, html_page, html_table
from torchcaps.reproduce.claims_text import untestable_title
from torchcaps.reproduce.report import (
    COST,
    HOW_JUDGED,
    MOST_GAPS,
    NO_VALUES,
    TITLE,
    ClaimVerdicts,
    PaperReport,
    Section,
    by_table,
    by_verdict,
    count_verdicts,
    describe_comparison,
    describe_gaps,
    describe_origin,
    describe_totals,
    describe_verdict,
    findings_title,
    fold_title,
    section_title,
    total_cost,
    verdict_conditions,
)
from torchcaps.reproduce.spec import Profile
from torchcaps.reproduce.tables import table_to_html
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict, ComparisonResult

CSS_CLASSES = {"holds": "holds", "does not hold": "fails", "undecided": "open", "not testable yet": "missing"}


def write_site(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.html and a page for each paper; return the path of index.html."""
    style = files("torchcaps.reproduce").joinpath("report.css").read_text(encoding="utf-8")
    papers = [report.spec.paper for report in reports]
    for report in reports:
        page = html_page(report.spec.paper, paper_html(report, papers), style=style)
        write_text(folder / f"{report.spec.paper}.html", page)
    write_text(folder / "index.html", html_page("what the papers claim", index_html(reports), style=style))
    return folder / "index.html"


def index_html(reports: Sequence[PaperReport]) -> str:
    """Return the body of the index: all papers with all their claims."""
    results = [result for report in reports for result in report.results]
    columns = "".join(f"<th scope='col'>{title}</th>" for title in VERDICTS)
    head = [f"<th scope='col'>paper</th><td class='bar'></td>{columns}<th scope='col'>{COST}</th>"]
    papers = "\n".join(
        f"<h2 id='{report.spec.paper}'>{_link(report)}: {html.escape(report.spec.title)}</h2>\n"
        f"{_claims_html(report, details=False)}"
        for report in reports
        if report.claims
    )
    rows = (_summary_row(report) for report in reports if report.claims)
    totals = describe_totals([report.claims for report in reports], total_cost(reports))
    return (
        f"<h1>{TITLE}</h1>\n<p class='lead'>{totals}</p>\n"
        f"{html_table(head, rows, css_class='summary')}<p>{HOW_JUDGED}</p>\n"
        f"{papers}\n<footer>{html.escape(describe_origin(results))}</footer>"
    )


def paper_html(report: PaperReport, papers: Sequence[str]) -> str:
    """Return the body of a paper's page: its claims with values and tests, then its tables and figures."""
    links = " ".join(f"<a href='{name}.html'>{name}</a>" for name in papers if name != report.spec.paper)
    spec = report.spec
    claims = ""
    if report.claims:
        totals = describe_totals([report.claims], report.cost)
        claims = f"<h2 id='claims'>Claims</h2>\n<p class='lead'>{totals}</p>\n<p>{HOW_JUDGED}</p>\n"
        claims += _claims_html(report, details=True)
    sections = "\n".join(_table_html(report, *group) for group in by_table(report.sections))
    return (
        f"<nav><a href='index.html'>All papers</a> {links}</nav>\n"
        f"<h1>{html.escape(spec.title)}</h1>\n<p>{html.escape(spec.authors)} ({html.escape(spec.paper)})</p>\n"
        f"<p>{html.escape(spec.about)}</p>\n{_contents_html(report)}\n{claims}\n{sections}\n"
        f"<footer>{html.escape(describe_origin(report.results))}</footer>"
    )


def _contents_html(report: PaperReport) -> str:
    """Return the table of contents of a paper's page."""
    links = [("claims", f"Claims ({len(report.claims)})")] if report.claims else []
    for name, _ in by_table(report.sections):
        links.append((name, section_title(name, report.spec.tables[name].title)))
    items = "".join(f"<li><a href='#{name}'>{html.escape(title)}</a></li>" for name, title in links)
    return f"<nav class='contents' aria-label='Contents'><ul>{items}</ul></nav>"


def _claims_html(report: PaperReport, *, details: bool) -> str:
    """Return the claims as a list; with details, those that are not testable yet are folded."""

    def listed(claims: ClaimVerdicts) -> str:
        items = (_claim_html(report, *claim, details=details) for claim in by_verdict(claims))
        return f"<ul class='claims'>{''.join(items)}</ul>"

    open_claims = [claim for claim in report.claims if claim[1].verdict == VERDICTS[-1]]
    if not details or not open_claims:
        return listed(report.claims)
    tested = [claim for claim in report.claims if claim not in open_claims]
    folded = f"<details><summary>{untestable_title(len(open_claims))}</summary>{listed(open_claims)}</details>"
    return (listed(tested) if tested else "") + folded


def _claim_html(report: PaperReport, profile: Profile, verdict: ClaimVerdict, *, details: bool) -> str:
    """Return a claim with its verdict as color, sign and words, and with its comparisons or a link to them."""
    kind = CSS_CLASSES[verdict.verdict]
    name = f"{verdict.name}-{profile}"
    statement = html.escape(verdict.claim.statement)
    if not details:
        statement = f"<a href='{report.spec.paper}.html#{name}'>{statement}</a>"
    source = f"{html.escape(verdict.claim.source)}; {verdict_conditions(profile, verdict)}"
    text = f"{statement} <span class='source'>{source}</span>"
    if details:
        # What a claim lacks is listed once, not for each comparison.
        results = (_comparison_html(result, with_gaps=not verdict.gaps) for result in verdict.comparisons)
        findings = f"<ul class='findings'>{''.join(results)}</ul>"
        if verdict.gaps:
            findings += f"<p class='gap'>Missing: {html.escape(describe_gaps(verdict))}</p>"
        text += f"<details><summary>{findings_title(verdict)}</summary>{findings}</details>"
        text += "".join(f"<p class='caution'>{html.escape(caution)}</p>" for caution in verdict.cautions)
    elif verdict.gaps:
        text += f" <p class='gap'>{html.escape(describe_gaps(verdict, MOST_GAPS))}</p>"
    elif verdict.cautions:
        text += " <span class='caution'>with a caution</span>"
    if verdict.note and (details or not verdict.gaps):
        text += f"<p class='note'>{html.escape(verdict.note)}</p>"
    return f"<li id='{name}'><span class='badge {kind}'>{describe_verdict(verdict)}</span><div>{text}</div></li>\n"


def _comparison_html(result: ComparisonResult, *, with_gaps: bool) -> str:
    """Return a comparison with its values; the operators are set in bold between the names."""
    statement = html.escape(result.statement)
    for sign in ("&gt;", "&lt;", "minus"):
        statement = statement.replace(f" {sign} ", f" <b>{sign}</b> ")
    words = html.escape(describe_comparison(result, with_gaps=with_gaps))
    words = f"<b>{result.verdict}</b>{words.removeprefix(result.verdict)}"
    return f"<li>{statement}: {words}</li>"


def _table_html(report: PaperReport, name: str, sections: Sequence[Section]) -> str:
    """Return a table or figure in all its profiles; the first one is open, unless it has no values."""
    table = report.spec.tables[name]
    parts = [f"<h2 id='{name}'>{html.escape(section_title(name, table.title))}</h2>"]
    if table.about:
        parts.append(f"<p>{html.escape(table.about)}</p>")
    for section in sections:
        text, fold = _section_html(section), fold_title(section, section is sections[0])
        parts.append(f"<details><summary>{html.escape(fold)}</summary>{text}</details>" if fold else text)
    return "\n".join(parts)


def _section_html(section: Section) -> str:
    parts = [f"<p class='smoke'>{html.escape(section.smoke)}</p>"] if section.smoke else []
    if section.table:
        parts.append(table_to_html(section.table))
    parts += [html_figure(figure, "h3") for figure in section.figures]
    if not section.table and not section.figures:
        parts.append(f"<p>{NO_VALUES}</p>")
    return "\n".join(parts)


def _summary_row(report: PaperReport) -> list[str]:
    counts = count_verdicts(report.claims)
    total = len(report.claims)
    bar = "".join(
        f"<span class='{CSS_CLASSES[verdict]}' style='width:{100 * counts[verdict] / total:.1f}%'></span>"
        for verdict in VERDICTS[:-1]
    )
    cells = [f"<td>{counts[verdict]}</td>" for verdict in VERDICTS]
    cells.append(f"<td>{html.escape(str(report.cost)) if counts['not testable yet'] else ''}</td>")
    return [f"<td>{_link(report)}</td><td class='bar'><div class='scale'>{bar}</div></td>", *cells]


def _link(report: PaperReport) -> str:
    name = html.escape(report.spec.paper)
    return f"<a href='{name}.html'>{name}</a>"
