"""The report as Markdown, for the documentation and the README: the same words, with pictures as files beside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchcaps.files import atomic_path, write_text
from torchcaps.html import ThemedFigure
from torchcaps.reproduce.report import (
    HOW_JUDGED,
    ClaimVerdicts,
    PaperReport,
    Section,
    count_verdicts,
    describe_comparison,
    lead_words,
    made_with,
    section_title,
    verdict_words,
)
from torchcaps.reproduce.tables import escape_markdown, table_to_markdown
from torchcaps.reproduce.verdicts import VERDICTS


def write_markdown(reports: Sequence[PaperReport], folder: Path) -> Path:
    """Write index.md, a page for each paper and the pictures; return the path of the first."""
    for report in reports:
        write_text(folder / f"{report.spec.paper}.md", paper_markdown(report, folder))
    judged = {report.spec.paper: report.claims for report in reports}
    parts = ["# What the papers claim, and what holds", summary_markdown(judged, link="{}.md"), HOW_JUDGED]
    write_text(folder / "index.md", "\n\n".join([*parts, claims_table(judged)]) + "\n")
    return folder / "index.md"


def summary_markdown(judged: Mapping[str, ClaimVerdicts], *, link: str) -> str:
    """The state of all claims in a sentence and a table; ``link`` makes an address of a paper's name."""
    lines = [["paper", *VERDICTS], ["---", *["---:"] * len(VERDICTS)]]
    for paper, claims in judged.items():
        if claims:
            counts = count_verdicts(claims)
            lines.append([f"[{paper}]({link.format(paper)})", *(str(counts[verdict]) for verdict in VERDICTS)])
    return f"{lead_words(judged.values())}\n\n{_rows(lines)}"


def claims_table(judged: Mapping[str, ClaimVerdicts]) -> str:
    """A table of claims: the verdict, the statement, where it is made."""
    lines = [["verdict", "claim", "paper", "profile"], ["---"] * 4]
    for paper, claims in judged.items():
        for profile, each in claims:
            words = map(escape_markdown, (each.claim.statement, f"{paper}, {each.claim.source}"))
            lines.append([_verdict(each.verdict, verdict_words(each)), *words, profile])
    return _rows(lines)


def claims_list(claims: ClaimVerdicts) -> str:
    """Claims with their numbers, the test, cautions and notes."""
    parts = []
    for profile, each in claims:
        source = f"{each.claim.source}; profile {profile}"
        lines = [
            f"- {_verdict(each.verdict, verdict_words(each))}: {escape_markdown(f'{each.claim.statement} ({source})')}"
        ]
        if each.note:
            lines.append(f"    - **Note:** {escape_markdown(each.note)}")
        for result in each.comparisons:
            lines.append(f"    - {escape_markdown(result.statement)}: {escape_markdown(describe_comparison(result))}")
        lines += [f"    - Caution: {escape_markdown(caution)}" for caution in each.cautions]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def paper_markdown(report: PaperReport, folder: Path) -> str:
    """One paper; its pictures are written into the folder."""
    spec = report.spec
    parts = [
        f"# {escape_markdown(spec.title)}",
        f"{escape_markdown(spec.authors)} ({spec.paper})",
        escape_markdown(spec.about),
    ]
    if report.claims:
        parts += ["## Claims", HOW_JUDGED, claims_list(report.claims)]
    for section in report.sections:
        parts += _section(report, section, folder)
    return "\n\n".join(filter(None, [*parts, escape_markdown(made_with(report.results))])) + "\n"


def _section(report: PaperReport, section: Section, folder: Path) -> list[str]:
    table = report.spec.tables[section.name]
    parts = [f"## {escape_markdown(section_title(section.name, table.title))}", escape_markdown(table.about)]
    if section.table:
        parts.append(table_to_markdown(section.table))
    for number, picture in enumerate(section.pictures):
        parts.append(_picture(picture, folder, f"{report.spec.paper}-{section.name}-{section.profile}-{number}"))
    if not section.table and not section.pictures:
        parts.append("Not measured yet.")
    return parts


def _picture(picture: ThemedFigure, folder: Path, name: str) -> str:
    """Write a picture in both themes and point at it."""
    light, dark = (
        _save(data, folder, f"{name}-{theme}") for theme, data in (("light", picture.light), ("dark", picture.dark))
    )
    title = escape_markdown(picture.title)
    warning = f"**{escape_markdown(picture.warning)}**\n\n" if picture.warning else ""
    return (
        f"### {title}\n\n{warning}"
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{title}" src="{light}"></picture>\n\n{escape_markdown(picture.caption)}'
    )


def _save(address: str, folder: Path, name: str) -> str:
    kind, _, data = address.removeprefix("data:image/").partition(";base64,")
    target = f"images/{name}.{'svg' if kind == 'svg+xml' else kind}"
    with atomic_path(folder / target) as temporary:
        temporary.write_bytes(base64.b64decode(data))
    return target


def _verdict(verdict: str, words: str) -> str:
    """What is decided stands out."""
    return words if verdict == "undecided" else f"**{words}**"


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
