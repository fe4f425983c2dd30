"""torchcaps doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from torchcaps.cli import console


def doctor(json: Annotated[bool, typer.Option(help="Print as JSON.")] = False) -> None:
    """Show what this installation can do: versions, device, which form of each routing runs, and what is missing."""
    from torchcaps.bench.installation import examine

    findings = examine()
    if json:
        console.print_json([asdict(finding) for finding in findings])
        return
    rows = [(finding.topic, escape(finding.found), escape(finding.advice)) for finding in findings]
    console.print_table("This installation", ("what", "found", "what to do"), rows)
    problems = sum(bool(finding.advice) for finding in findings)
    console.out.print(f"{problems} to look at, in the last column." if problems else "Nothing is amiss.")
