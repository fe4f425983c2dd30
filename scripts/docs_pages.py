"""Make every page and part of README and documentation that is made from something: python scripts/docs_pages.py

Parts stand between two marks (see docs_parts/marks.py) in any page; the pages in docs/papers are made as a whole from
the result files, with their pictures; performance, reliability and robustness have scripts of their own, which are run
too. A test holds all of it to the registries and result files.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import diagrams
import performance_page
import reliability_page
import robustness_page
from docs_parts import all_routings, capabilities, learned, measured, own_images, papers, speed, trials, which
from docs_parts.found import all_evidence
from docs_parts.marks import Maker, filled

from torchcaps.reproduce.report import report_paper
from torchcaps.reproduce.report_markdown import paper_markdown

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "docs" / "papers"
# The pages on what a paper brought, where deviations from it are told.
BROUGHT = {
    "sabour2017": ("models/capsnet", "routings/dynamic"),
    "hinton2018": ("models/matrix-capsnet", "routings/em"),
    "chen2019": ("models/g-capsnet", "routings/trainable"),
    "choi2019": ("models/ar-capsnet", "routings/attention"),
    "yang2021": ("models/capsnet-discriminative", "routings/discriminative"),
    "gu2021": ("models/aff-capsnet", "routings/uniform"),
    "hahn2019": ("models/sr-capsnet", "routings/self-routing"),
    "ribeiro2020": ("models/vb-capsnet", "routings/variational-bayes"),
    "tsai2020": ("models/inverted-capsnet", "routings/inverted-attention"),
    "mazzia2021": ("models/efficient-capsnet", "routings/self-attention"),
    "mitterreiter2023": ("models/capsnet", "routings/dynamic"),
}


def all_makers(results: Path) -> dict[str, Maker]:
    """Whoever makes a part, by the name in its mark."""
    found: dict[str, Maker] = dict(capabilities.MAKERS)
    for module in (all_routings, learned, measured, own_images, papers, speed, trials, which):
        found |= module.makers(results)
    return found


def marked_pages(root: Path = ROOT) -> list[Path]:
    """README and every page of the documentation that has a mark."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if "<!-- made by scripts/docs_pages.py:" in page.read_text(encoding="utf-8")]


def made_parts(root: Path = ROOT) -> dict[Path, str]:
    """The text of every page with marks, its parts made anew."""
    makers = all_makers(root / "results")
    return {
        page: filled(page.read_text(encoding="utf-8"), makers, str(page.relative_to(root)))
        for page in marked_pages(root)
    }


def made_papers(folder: Path, root: Path = ROOT) -> dict[str, str]:
    """The text of each paper's page, by name; its pictures are written into the folder."""
    found = {}
    for paper, evidence in all_evidence(root / "results").items():
        text = paper_markdown(report_paper(evidence[0].spec, root / "results"), folder)
        network, routing = BROUGHT[paper]
        again = (
            f"Its [networks](../{network}.md) and [routing](../{routing}.md) have pages of their own, with what is "
            f"built otherwise than in the paper. Measured by `torchcaps reproduce {paper}` ([how](../reproduce.md))."
        )
        title, authors, about, rest = text.split("\n\n", 3)
        found[f"{paper}.md"] = "\n\n".join([title, authors, about, again, rest])
    return found


def write_papers() -> None:
    """The papers' pages, with new pictures in the place of the old ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page, text in made_papers(folder).items():
            (PAPERS / page).write_text(text, encoding="utf-8")
        (PAPERS / "images").mkdir(exist_ok=True)
        for old in (PAPERS / "images").iterdir():
            old.unlink()
        for new in sorted(folder.glob("images/*")):
            (PAPERS / "images" / new.name).write_bytes(new.read_bytes())


def pictures_in(text: str) -> set[str]:
    """The pictures that a paper's page shows, by name."""
    return set(re.findall(r'(?:srcset|src)="images/([^"]*)"', text))


def main() -> None:
    diagrams.main()
    performance_page.main()
    reliability_page.main()
    robustness_page.main()
    write_papers()
    for page, text in made_parts().items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
