"""Write docs/licences.md: python scripts/licences.py, in an environment in which everything is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 60  # letters of a licence's name; some packages put the whole text there

INTRODUCTION = """# Licences of dependencies

Made by `scripts/licences.py` from what the packages say of themselves. torchcaps itself is under the MIT licence. The
first table is what `pip install torchcaps` brings; the second is only there for extras and development.
"""


def licence(name: str) -> str:
    """The licence by a package's own words: its expression, its field, or its classifiers."""
    found = metadata.metadata(name)
    said = found.get("License-Expression") or found.get("License") or ""
    if said and len(said) <= LONGEST and said.upper() != "UNKNOWN":
        return said
    classes = [line.rsplit(" :: ", 1)[1] for line in found.get_all("Classifier") or [] if line.startswith("License ::")]
    return ", ".join(dict.fromkeys(classes)) or " ".join(said.split())[:LONGEST] or "not stated"


def needed(name: str, seen: set[str] | None = None) -> set[str]:
    """A package's dependencies, and theirs, without extras."""
    seen = set() if seen is None else seen
    for line in metadata.requires(name) or []:
        package = normal(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0])
        if "extra ==" not in line and package not in seen and installed(package):
            seen.add(package)
            needed(package, seen)
    return seen


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def table(names: set[str]) -> str:
    rows = [f"| {name} | {metadata.version(name)} | {licence(name)} |" for name in sorted(names)]
    return "\n".join(["| package | version | licence |", "| --- | --- | --- |", *rows]) + "\n"


def page() -> str:
    """The whole page."""
    core = needed("torchcaps")
    pinned = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    more = {normal(name) for name in pinned if installed(name)} - core
    return f"{INTRODUCTION}\n{table(core)}\n## Extras and development\n\n{table(more)}"


if __name__ == "__main__":
    (ROOT / "docs" / "licences.md").write_text(page(), encoding="utf-8")
