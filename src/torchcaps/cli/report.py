"""torchcaps report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console


def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, as 'torchcaps reproduce' makes it.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("site/report"),
    markdown: Annotated[Path | None, typer.Option(help="Folder for the same as Markdown.")] = None,
) -> None:
    """Build a site from result files: every paper's claims with verdicts, tables and figures."""
    from torchcaps.reproduce.markdown import write_markdown
    from torchcaps.reproduce.pages import write_site
    from torchcaps.reproduce.report import read_report
    from torchcaps.reproduce.wording import lead_words

    reports = read_report(results)
    console.out.print(lead_words(each.claims for each in reports), soft_wrap=True)
    console.out.print(f"Report: {write_site(reports, out)}", soft_wrap=True)
    if markdown:
        console.out.print(f"Markdown: {write_markdown(reports, markdown)}", soft_wrap=True)
