"""The report as a site of HTML pages that need nothing else: an overview of all claims, and a page for each paper."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from torchcaps.files import write_text
from torchcaps.html import html_figure, html_page
from torchcaps.reproduce.report import (
    HOW_JUDGED,
    PaperReport,
    Section,
    count_verdicts,
    describe_comparison,
    lead_words,
    made_with,
    section_title,
    verdict_words,
)
from torchcaps.reproduce.spec import Profile
from torchcaps.reproduce.tables import table_to_html
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict, ComparisonResult

CLASSES = {"holds": "holds", "does not hold": "fails", "undecided": "open"}


def write_site(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.html and a page for each paper; return the path of the first."""
    style = files("torchcaps.reproduce").joinpath("report.css").read_text(encoding="utf-8")
    papers = [report.spec.paper for report in reports]
    for report in reports:
        page = html_page(report.spec.paper, paper_body(report, papers), style=style)
        write_text(folder / f"{report.spec.paper}.html", page)
    write_text(folder / "index.html", html_page("what the papers claim", overview_body(reports), style=style))
    return folder / "index.html"


def overview_body(reports: Sequence[PaperReport]) -> str:
    """All papers and all their claims."""
    results = [result for report in reports for result in report.results]
    lead = lead_words([report.claims for report in reports])
    rows = "".join(map(_summary_row, reports))
    head = "".join(f"<th scope='col'>{title}</th>" for title in VERDICTS)
    papers = "\n".join(
        f"<h2 id='{report.spec.paper}'>{_link(report)}: {html.escape(report.spec.title)}</h2>\n"
        f"<ul class='claims'>{''.join(_claim(report, *claim, details=False) for claim in report.claims)}</ul>"
        for report in reports
        if report.claims
    )
    return (
        f"<h1>What the papers claim, and what holds</h1>\n<p class='lead'>{lead}</p>\n<p>{HOW_JUDGED}</p>\n"
        f"<div class='table'><table class='summary'><thead><tr><th scope='col'>paper</th><td class='bar'></td>{head}"
        f"</tr></thead><tbody>{rows}</tbody></table></div>\n"
        f"{papers}\n<footer>{html.escape(made_with(results))}</footer>"
    )


def paper_body(report: PaperReport, papers: Sequence[str]) -> str:
    """One paper: its claims with the numbers and the test, then its tables and figures."""
    links = " ".join(f"<a href='{name}.html'>{name}</a>" for name in papers if name != report.spec.paper)
    spec = report.spec
    claims = "".join(_claim(report, *claim, details=True) for claim in report.claims)
    if claims:
        claims = f"<h2>Claims</h2>\n<p>{HOW_JUDGED}</p>\n<ul class='claims'>{claims}</ul>"
    sections = "\n".join(_section(report, section) for section in report.sections)
    return (
        f"<nav><a href='index.html'>All papers</a> {links}</nav>\n"
        f"<h1>{html.escape(spec.title)}</h1>\n<p>{html.escape(spec.authors)} ({html.escape(spec.paper)})</p>\n"
        f"<p>{html.escape(spec.about)}</p>\n{claims}\n{sections}\n<footer>{html.escape(made_with(report.results))}</footer>"
    )


def _claim(report: PaperReport, profile: Profile, judgement: ClaimVerdict, *, details: bool) -> str:
    """A claim with its verdict in colour, sign and words; with the numbers behind it, or a link to them."""
    kind = CLASSES[judgement.verdict] if judgement.measured else "missing"
    name = f"{judgement.name}-{profile}"
    statement = html.escape(judgement.claim.statement)
    if not details:
        statement = f"<a href='{report.spec.paper}.html#{name}'>{statement}</a>"
    text = f"{statement} <span class='source'>{html.escape(judgement.claim.source)}; profile {profile}</span>"
    if details:
        text += f"<ul class='findings'>{''.join(map(_finding, judgement.comparisons))}</ul>"
        text += "".join(f"<p class='caution'>{html.escape(caution)}</p>" for caution in judgement.cautions)
    elif judgement.cautions and judgement.measured:
        text += " <span class='caution'>with a caution</span>"
    if judgement.note:
        text += f"<p class='note'>{html.escape(judgement.note)}</p>"
    return f"<li id='{name}'><span class='badge {kind}'>{verdict_words(judgement)}</span><div>{text}</div></li>\n"


def _finding(result: ComparisonResult) -> str:
    """A comparison with its numbers; what is compared stands apart from the names."""
    statement = html.escape(result.statement)
    for sign in ("&gt;", "&lt;", "minus"):
        statement = statement.replace(f" {sign} ", f" <b>{sign}</b> ")
    words = html.escape(describe_comparison(result))
    if result.measured:
        words = f"<b>{result.verdict}</b>{words.removeprefix(result.verdict)}"
    return f"<li>{statement}: {words}</li>"


def _section(report: PaperReport, section: Section) -> str:
    table = report.spec.tables[section.name]
    heading = section_title(section.name, table.title)
    parts = [f"<h2 id='{section.name}-{section.profile}'>{html.escape(heading)}</h2>"]
    if table.about:
        parts.append(f"<p>{html.escape(table.about)}</p>")
    if section.table:
        parts.append(table_to_html(section.table))
    parts += [html_figure(picture, "h3") for picture in section.pictures]
    if not section.table and not section.pictures:
        parts.append("<p>Not measured yet.</p>")
    return "\n".join(parts)


def _summary_row(report: PaperReport) -> str:
    counts = count_verdicts(report.claims)
    total = len(report.claims) or 1
    bar = "".join(
        f"<span class='{CLASSES[verdict]}' style='width:{100 * counts[verdict] / total:.1f}%'></span>"
        for verdict in VERDICTS[:2]
    )
    figures = "".join(f"<td>{counts[verdict]}</td>" for verdict in VERDICTS)
    return f"<tr><td>{_link(report)}</td><td class='bar'><div class='scale'>{bar}</div></td>{figures}</tr>\n"


def _link(report: PaperReport) -> str:
    name = html.escape(report.spec.paper)
    return f"<a href='{name}.html'>{name}</a>"
