"""Write the report as HTML pages and as Markdown: an index of all claims, and a page for each paper."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from torchcaps.files import atomic_path, write_text
from torchcaps.html import ThemedFigure, escape_markdown, html_figure, html_page, html_table, markdown_table
from torchcaps.reproduce.estimate import Cost, job_cost
from torchcaps.reproduce.report import (
    HOW_JUDGED,
    MOST_GAPS,
    ClaimVerdicts,
    PaperReport,
    Section,
    count_verdicts,
    describe_comparison,
    describe_gaps,
    describe_origin,
    describe_totals,
    describe_verdict,
    section_title,
)
from torchcaps.reproduce.spec import Profile
from torchcaps.reproduce.tables import table_to_html, table_to_markdown
from torchcaps.reproduce.verdicts import COUNTED, VERDICTS, ClaimVerdict, ComparisonResult

TITLE = "What the papers claim, and what holds"
NOT_MEASURED = "Not measured yet."
CSS_CLASSES = {"holds": "holds", "does not hold": "fails", "undecided": "open", "not testable yet": "missing"}
COST = "core-hours"


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
    costs = {report.spec.paper: report.cost for report in reports}
    summary = summary_markdown(verdicts, costs, total_cost(reports), link="{}.md")
    parts = [f"# {TITLE}", summary, HOW_JUDGED, claims_table(verdicts), untestable_table(verdicts)]
    write_text(folder / "index.md", "\n\n".join(parts) + "\n")
    return folder / "index.md"


def total_cost(reports: Iterable[PaperReport]) -> Cost:
    """Return the cost of what remains of all papers; a training that two papers share counts once."""
    found = list(reports)
    results = (result for report in found for result in report.results)
    return job_cost((job for report in found for job in report.remaining), results)


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
    claims = (_claim_html(report, *claim, details=details) for claim in by_verdict(report.claims))
    return f"<ul class='claims'>{''.join(claims)}</ul>"


def _claim_html(report: PaperReport, profile: Profile, verdict: ClaimVerdict, *, details: bool) -> str:
    """Return a claim with its verdict as color, sign and words, and with its comparisons or a link to them."""
    kind = CSS_CLASSES[verdict.verdict]
    name = f"{verdict.name}-{profile}"
    statement = html.escape(verdict.claim.statement)
    if not details:
        statement = f"<a href='{report.spec.paper}.html#{name}'>{statement}</a>"
    text = (
        f"{statement} <span class='source'>{html.escape(verdict.claim.source)}; {_conditions(profile, verdict)}</span>"
    )
    if details:
        # What a claim lacks is listed once, not for each comparison.
        results = (_comparison_html(result, with_gaps=not verdict.gaps) for result in verdict.comparisons)
        findings = f"<ul class='findings'>{''.join(results)}</ul>"
        if verdict.gaps:
            findings += f"<p class='gap'>Missing: {html.escape(describe_gaps(verdict))}</p>"
        text += f"<details><summary>{_findings_title(verdict)}</summary>{findings}</details>"
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


def by_table(sections: Sequence[Section]) -> list[tuple[str, list[Section]]]:
    """Return the sections of each table or figure, one for each profile."""
    return [(name, list(group)) for name, group in groupby(sections, key=lambda section: section.name)]


def _fold_title(section: Section, first: bool) -> str:
    """Return the title under which a section is folded; empty for the first one of a table that has values."""
    if not section.has_values:
        return f"{NOT_MEASURED} The paper's values"
    return "" if first else f"The same in profile {section.profile}"


def _table_html(report: PaperReport, name: str, sections: Sequence[Section]) -> str:
    """Return a table or figure in all its profiles; the first one is open, unless it has no values."""
    table = report.spec.tables[name]
    parts = [f"<h2 id='{name}'>{html.escape(section_title(name, table.title))}</h2>"]
    if table.about:
        parts.append(f"<p>{html.escape(table.about)}</p>")
    for section in sections:
        text, fold = _section_html(section), _fold_title(section, section is sections[0])
        parts.append(f"<details><summary>{html.escape(fold)}</summary>{text}</details>" if fold else text)
    return "\n".join(parts)


def _section_html(section: Section) -> str:
    parts = [f"<p class='smoke'>{html.escape(section.smoke)}</p>"] if section.smoke else []
    if section.table:
        parts.append(table_to_html(section.table))
    parts += [html_figure(figure, "h3") for figure in section.figures]
    if not section.table and not section.figures:
        parts.append(f"<p>{NOT_MEASURED}</p>")
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


def by_verdict(claims: ClaimVerdicts) -> ClaimVerdicts:
    """Return claims in the order of VERDICTS: decided ones first, those that are not testable yet last."""
    return sorted(claims, key=lambda claim: VERDICTS.index(claim[1].verdict))


def summary_markdown(
    verdicts: Mapping[str, ClaimVerdicts], costs: Mapping[str, Cost], total: Cost, *, link: str
) -> str:
    """Return a sentence and a table that count the verdicts of each paper; ``link`` formats a paper's name."""
    rows = []
    for paper, claims in verdicts.items():
        if claims:
            counts = count_verdicts(claims)
            cost = str(costs[paper]) if counts["not testable yet"] else ""
            rows.append([f"[{paper}]({link.format(paper)})", *(str(counts[verdict]) for verdict in VERDICTS), cost])
    return f"{describe_totals(verdicts.values(), total)}\n\n{markdown_table(['paper', *VERDICTS, COST], rows)}"


def claims_table(verdicts: Mapping[str, ClaimVerdicts]) -> str:
    """Return a Markdown table of the claims that competent networks tested, decided ones first."""
    rows = []
    for verdict in VERDICTS[:-1]:
        for paper, claims in verdicts.items():
            for profile, each in claims:
                if each.verdict == verdict:
                    words = map(escape_markdown, (each.claim.statement, f"{paper}, {each.claim.source}"))
                    rows.append([_verdict_markdown(each), *words, _conditions(profile, each)])
    if not rows:
        return "No claim was tested on competent networks yet."
    return markdown_table(["verdict", "claim", "paper", "measured in"], rows, align="---")


def _conditions(profile: Profile, verdict: ClaimVerdict) -> str:
    if all(result.test == COUNTED for result in verdict.comparisons):
        return "counted, without training"
    return f"profile {profile}" if verdict.conditional else f"profile {profile}; presupposes no accuracy"


def untestable_table(verdicts: Mapping[str, ClaimVerdicts]) -> str:
    """Return a Markdown table of the claims that are not testable yet, with what is missing."""
    rows = [
        list(
            map(
                escape_markdown, (each.claim.statement, f"{paper}, {each.claim.source}", describe_gaps(each, MOST_GAPS))
            )
        )
        for paper, claims in verdicts.items()
        for _, each in claims
        if each.verdict == "not testable yet"
    ]
    return markdown_table(["claim", "paper", "missing"], rows, align="---") if rows else "All claims were tested."


def _claims_markdown(claims: ClaimVerdicts) -> list[str]:
    """Return the claims that were tested, and the others folded."""
    tested = [claim for claim in claims if claim[1].verdict != VERDICTS[-1]]
    others = [claim for claim in claims if claim[1].verdict == VERDICTS[-1]]
    if not others:
        return [claims_list(tested)]
    title = f"{len(others)} claim{' is' if len(others) == 1 else 's are'} {VERDICTS[-1]}"
    return [
        claims_list(tested),
        f'<details markdown="1">\n<summary>{title}</summary>',
        claims_list(others, fold=False),  # a folded part in another one is closed at the end of the first
        "</details>",
    ]


def claims_list(claims: ClaimVerdicts, *, fold: bool = True) -> str:
    """Return a Markdown list of claims with their comparisons, notes and cautions; ``fold`` hides the comparisons."""
    lines = []
    for profile, each in by_verdict(claims):
        statement = f"{each.claim.statement} ({each.claim.source}; {_conditions(profile, each)})"
        found = [
            f"{result.statement}: {describe_comparison(result, with_gaps=not each.gaps)}" for result in each.comparisons
        ]
        found += [f"Missing: {describe_gaps(each)}"] if each.gaps else []
        # On one line: Markdown in a list cannot have blocks of HTML.
        items = "".join(f"<li>{escape_markdown(text)}</li>" for text in found)
        folded = f" <details><summary>{_findings_title(each)}</summary><ul>{items}</ul></details>" if fold else ""
        lines.append(f"- {_verdict_markdown(each)}: {escape_markdown(statement)}{folded}")
        lines += [f"    - {escape_markdown(text)}" for text in found if not fold]
        if each.note:
            lines.append(f"    - **Note:** {escape_markdown(each.note)}")
        lines += [f"    - Caution: {escape_markdown(caution)}" for caution in each.cautions]
    return "\n".join(lines)


def _findings_title(verdict: ClaimVerdict) -> str:
    count = len(verdict.comparisons)
    return f"{count} comparison{'' if count == 1 else 's'}{', and what is missing' if verdict.gaps else ''}"


def paper_markdown(report: PaperReport, folder: Path) -> str:
    """Return the page of a paper; its figures are written into the folder."""
    spec = report.spec
    title, authors, about = map(escape_markdown, (spec.title, spec.authors, spec.about))
    parts = [f"# {title}", f"{authors} ({spec.paper})", about]
    if report.claims:
        totals = describe_totals([report.claims], report.cost)
        parts += ["## Claims", totals, HOW_JUDGED, *_claims_markdown(report.claims)]
    for name, sections in by_table(report.sections):
        table = spec.tables[name]
        parts += [f"## {escape_markdown(section_title(name, table.title))}", escape_markdown(table.about)]
        for section in sections:
            text, fold = _section_markdown(report, section, folder), _fold_title(section, section is sections[0])
            head = f'<details markdown="1">\n<summary>{escape_markdown(fold)}</summary>'
            parts += [head, *text, "</details>"] if fold else text
    return "\n\n".join(filter(None, [*parts, escape_markdown(describe_origin(report.results))])) + "\n"


def _section_markdown(report: PaperReport, section: Section, folder: Path) -> list[str]:
    parts = [f"*{escape_markdown(section.smoke)}*"] if section.smoke else []
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
    return f"**{words}**" if verdict.verdict in ("holds", "does not hold") else words
