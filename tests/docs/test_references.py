"""References to sections of the papers: every section that code and documentation name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "hinton2018": "1 2 3 4 4.1 5 5.1 6 7 7.1 8",
    "chen2019": "1 2 3 3.1 3.2 4 4.1 4.2 4.3 4.4 5 6.1 6.2",
    "choi2019": "1 1.1 2 3 3.1 3.2 3.3 3.4 3.5 4 4.1 4.2 4.3 4.4 5",
    "gu2021": "1 2 3 3.1 3.2 3.3 4",
}
# From the name of a paper to "section", without another paper's name or the end of a sentence between them.
REFERENCE = r"({paper}|{title})(?:(?!20\d\d\b[^,]|[;]).){{0,160}}?sections? (\d(?:\.\d)?)"
TITLES = {
    "hinton2018": "Matrix Capsules with EM Routing",
    "chen2019": "Generalized Capsule Networks",
    "choi2019": "Attention Routing Between Capsules",
    "gu2021": "Not More Robust",
}


@pytest.mark.parametrize("paper", SECTIONS)
def test_sections_of_a_paper_exist(paper: str) -> None:
    known, found = set(SECTIONS[paper].split()), []
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        for match in re.finditer(REFERENCE.format(paper=paper, title=TITLES[paper]), text, re.IGNORECASE):
            found.append((match[2], path.name, match[0]))
    assert len(found) >= 5
    assert not [each for each in found if each[0] not in known]
