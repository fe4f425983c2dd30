"""The report as Markdown pages: an index of all claims, and a page for each paper with its figures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchcaps.files import atomic_path, write_text
from torchcaps.html import ThemedFigure, escape_markdown, markdown_table
from torchcaps.reproduce.claims_text import untestable_title
from torchcaps.reproduce.estimate import Cost
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
from torchcaps.reproduce.tables import table_to_markdown
from torchcaps.reproduce.verdicts import VERDICTS, ClaimVerdict


def write_markdown(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.md, a page for each paper and the figures; return the path of index.md."""
    for report in reports:
        write_text(folder / f"{report.spec.paper}.md", paper_markdown(report, folder))
    verdicts = {report.spec.paper: report.claims for report in reports}
    costs = {report.spec.paper: report.cost for report in reports}
    claim_costs = {report.spec.paper: report.claim_costs for report in reports}
    summary = summary_markdown(verdicts, costs, total_cost(reports), link="{}.md")
    parts = [f"# {TITLE}", summary, HOW_JUDGED, claims_table(verdicts), untestable_table(verdicts, claim_costs)]
    write_text(folder / "index.md", "\n\n".join(parts) + "\n")
    return folder / "index.md"


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
                    rows.append([_verdict_markdown(each), *words, verdict_conditions(profile, each)])
    if not rows:
        return "No claim was tested on competent networks yet."
    return markdown_table(["verdict", "claim", "paper", "measured in"], rows, align="---")


def untestable_table(verdicts: Mapping[str, ClaimVerdicts], costs: Mapping[str, Mapping[str, Cost]]) -> str:
    """Return a Markdown table of the claims that are not testable yet, with what is missing and what testing costs.

    ``costs`` has the cost of each claim by paper and name.
    """
    rows = []
    for paper, claims in verdicts.items():
        for _, each in claims:
            if each.verdict == "not testable yet":
                words = (each.claim.statement, f"{paper}, {each.claim.source}", describe_gaps(each, MOST_GAPS))
                rows.append([*map(escape_markdown, words), str(costs[paper][each.name])])
    return markdown_table(["claim", "paper", "missing", COST], rows, align="---") if rows else "All claims were tested."


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
            text, fold = _section_markdown(report, section, folder), fold_title(section, section is sections[0])
            head = f'<details markdown="1">\n<summary>{escape_markdown(fold)}</summary>'
            parts += [head, *text, "</details>"] if fold else text
    return "\n\n".join(filter(None, [*parts, escape_markdown(describe_origin(report.results))])) + "\n"


def _claims_markdown(claims: ClaimVerdicts) -> list[str]:
    """Return the claims that were tested, and the others folded."""
    tested = [claim for claim in claims if claim[1].verdict != VERDICTS[-1]]
    others = [claim for claim in claims if claim[1].verdict == VERDICTS[-1]]
    if not others:
        return [claims_list(tested)]
    title = untestable_title(len(others))
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
        statement = f"{each.claim.statement} ({each.claim.source}; {verdict_conditions(profile, each)})"
        found = [
            f"{result.statement}: {describe_comparison(result, with_gaps=not each.gaps)}" for result in each.comparisons
        ]
        found += [f"Missing: {describe_gaps(each)}"] if each.gaps else []
        # On one line: Markdown in a list cannot have blocks of HTML.
        items = "".join(f"<li>{escape_markdown(text)}</li>" for text in found)
        folded = f" <details><summary>{findings_title(each)}</summary><ul>{items}</ul></details>" if fold else ""
        lines.append(f"- {_verdict_markdown(each)}: {escape_markdown(statement)}{folded}")
        lines += [f"    - {escape_markdown(text)}" for text in found if not fold]
        if each.note:
            lines.append(f"    - **Note:** {escape_markdown(each.note)}")
        lines += [f"    - Caution: {escape_markdown(caution)}" for caution in each.cautions]
    return "\n".join(lines)


def _section_markdown(report: PaperReport, section: Section, folder: Path) -> list[str]:
    parts = [f"*{escape_markdown(section.smoke)}*"] if section.smoke else []
    if section.table:
        parts.append(table_to_markdown(section.table))
    for number, figure in enumerate(section.figures):
        name = f"{report.spec.paper}-{section.name}-{section.profile}-{number}"
        parts.append(_figure_markdown(figure, folder, name))
    if not section.table and not section.figures:
        parts.append(NO_VALUES)
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
