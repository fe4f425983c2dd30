"""The documentation site builds strictly, is complete and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers.doc_blocks import ROOT

pytest.importorskip("mkdocs", reason="NOT TESTED: the documentation, because mkdocs is missing: pip install '.[docs]'")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not (ROOT / "mkdocs.yml").is_file(), reason="only a clone has the documentation"),
]
# What a page loads by itself; a link that a reader may follow is something else.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\s(?:src|srcset)=["']?(//|https?:)|@import|url\(["']?(//|http)"""
)
STYLESHEET = re.compile(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect|preload)[^>]*href=["']?(//|https?:)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link or anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(call, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_comes_from_another_host(site: Path) -> None:
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = page.read_text(encoding="utf-8")
        assert not LOADED.search(text), f"{page.relative_to(site)} loads {LOADED.search(text)}"
        assert not STYLESHEET.search(text), f"{page.relative_to(site)} loads {STYLESHEET.search(text)}"


def test_equations_are_drawn_and_nothing_is_left_raw(site: Path) -> None:
    text = (site / "routings" / "em.html").read_text(encoding="utf-8")
    assert text.count("<math") >= 3
    assert "&amp;M" not in text, "signs of alignment are no part of an equation"
    assert "mathcal" not in text
    reference = (site / "api" / "routings.html").read_text(encoding="utf-8")
    assert reference.count("<math") >= 6
    assert ".. math::" not in reference
    assert "<blockquote>" not in reference, "examples are code"
    assert "only-dark" in (site / "index.html").read_text(encoding="utf-8"), "the picture follows the page's theme"


def test_the_api_pages_list_classes_with_methods_and_no_raw_markup(site: Path) -> None:
    for source in (ROOT / "docs" / "api").glob("*.md"):
        page = (site / "api" / f"{source.stem}.html").read_text(encoding="utf-8")
        assert not re.search(r":(?:meth|func|class|mod|attr):", page), source.name
        for name in re.findall(r"^::: (torchcaps[\w.]*)$", source.read_text(encoding="utf-8"), re.MULTILINE):
            assert f'id="{name}"' in page, f"{source.name} has no heading for {name}"
    layers = (site / "api" / "layers.html").read_text(encoding="utf-8")
    assert 'href="#torchcaps.layers.CapsuleLayer"' in layers, "in the table of contents"
    assert 'id="torchcaps.layers.CapsuleLayer.dense"' in layers
    assert "child capsules vote for the parents" in layers


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(yaml.safe_load(text)["nav"])))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert named == there
