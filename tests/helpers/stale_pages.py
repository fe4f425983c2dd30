"""List pages that are out of date: python -m tests.helpers.stale_pages

Runs in its own process, because tests register models and routings that no page should show.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.helpers.doc_blocks import ROOT
from torchcaps.models import list_models
from torchcaps.reproduce.spec import list_papers
from torchcaps.routing import routings

PAPERS = ROOT / "docs" / "papers"


def lagging_parts() -> list[str]:
    import docs_pages

    made = docs_pages.made_parts()
    return [str(page.relative_to(ROOT)) for page, text in made.items() if page.read_text(encoding="utf-8") != text]


def lagging_papers() -> list[str]:
    import docs_pages

    with tempfile.TemporaryDirectory() as folder:
        made = docs_pages.made_papers(Path(folder))
    lagging = [name for name, text in made.items() if (PAPERS / name).read_text(encoding="utf-8") != text]
    wanted = set().union(*(docs_pages.pictures_in(text) for text in made.values()))
    there = {path.name for path in (PAPERS / "images").glob("*")}
    return [*lagging, *sorted(wanted ^ there)]


def without_page() -> list[str]:
    """Models, routings and papers that no page shows."""
    texts = {folder: "".join(_bodies(ROOT / "docs" / folder)) for folder in ("models", "routings")}
    models = [name for name in list_models() if f"`{name}`" not in texts["models"]]
    shown = ("routing-results {}", " {} -->")
    missing = [
        record.name for record in routings if not any(mark.format(record.name) in texts["routings"] for mark in shown)
    ]
    return [*models, *missing, *(paper for paper in list_papers() if not (PAPERS / f"{paper}.md").is_file())]


def _bodies(folder: Path) -> list[str]:
    return [page.read_text(encoding="utf-8") for page in folder.glob("*.md") if page.name != "index.md"]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "scripts"))
    print(json.dumps({"parts": lagging_parts(), "papers": lagging_papers(), "without page": without_page()}))
