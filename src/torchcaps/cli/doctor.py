"""torchcaps doctor"""

from __future__ import annotations

from dataclasses import asdict

from torchcaps.cli import console
from torchcaps.cli.settings import AsJson


def doctor(json: AsJson = False) -> None:
    """Show what this installation can do: versions, devices, kernels in use, data found, and remedies for trouble."""
    from torchcaps.bench.installation import examine

    findings = examine()
    if json:
        console.print_json([asdict(finding) for finding in findings])
        return
    shown = [finding for finding in findings if not finding.detail]
    rows = [(finding.topic, finding.found, finding.advice) for finding in shown]
    console.print_table("This installation", ("what", "found", "what to do"), rows)
    problems = sum(bool(finding.advice) for finding in findings)
    console.out.print(f"{problems} to look at, in the last column." if problems else "Nothing is amiss.")
