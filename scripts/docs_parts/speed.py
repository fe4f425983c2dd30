"""Speed in a few lines, for README: what the project claims about it, as it was measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from docs_parts.marks import Maker, table
from torchcaps.files import read_json

# Files of results/bench, each a list of checks with targets, and what they are about.
FILES = {"capsnet": "CapsNet", "matrix-capsules": "matrix capsules", "two-threads": "matrix capsules"}


def speed(results: Path) -> str:
    """Every claim about speed that has a target, with what was measured."""
    rows, machines = [], set()
    for name, title in FILES.items():
        path = results / "bench" / f"{name}.json"
        if not path.is_file():
            continue
        found = read_json(path)
        machine = found["environment"]
        machines.add(f"{machine['processor']}, {machine['cores']} cores, torch {machine['versions']['torch']}")
        rows += [
            [f"{title}, {check['what']}", f"{check['measured']:.3g}", check["target"], check.get("note", "")]
            for check in found["checks"]
            if check["met"] is not None
        ]
    if not rows:
        return "Not measured yet: `make bench` does it."
    head = ["what", "ratio", "aimed at", "the two"]
    return f"{table(head, rows)}\n\nMeasured on: {'; '.join(sorted(machines))}; no GPU was there."


def makers(results: Path) -> dict[str, Maker]:
    return {"speed": partial(speed, results)}
