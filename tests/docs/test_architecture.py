"""docs/architecture.md names only files that exist, and every package."""

from __future__ import annotations

import re

import pytest

from tests.helpers.doc_blocks import ROOT
from tests.test_imports import MAY_USE, SOURCE

PAGE = ROOT / "docs" / "architecture.md"
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="only a clone has the documentation")


def test_every_named_file_exists() -> None:
    prose = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = re.findall(r"`([\w/.-]+(?:\.py|/))`", prose)
    assert len(set(named)) > 50
    missing = [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()]
    assert not missing


def test_every_package_is_listed_with_what_it_may_import() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", text, re.MULTILINE))
    assert listed.keys() == MAY_USE.keys()
    for package, may_use in MAY_USE.items():
        if package != "cli":
            assert set(listed[package].split(", ")) - {"nothing"} == may_use - {"__version__"}, package


def test_twenty_questions_are_answered() -> None:
    questions = PAGE.read_text(encoding="utf-8").partition("## Where do I change ...?")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| .*`[\w/]+(?:\.py|/)`.* \|$", questions, re.MULTILINE)) >= 20
