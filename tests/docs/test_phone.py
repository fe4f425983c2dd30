"""Style of the documentation on a telephone: the first picture and the models table fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.browser import FLAGS, find_chromium

ROOT = Path(__file__).parents[2]
CHROMIUM = find_chromium()
pytestmark = [pytest.mark.process, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
ROW = "".join(f"<td>{text}</td>" for text in ("<code>capsnet-l1-cifar10</code>", *["some words"] * 7))
# Beside the style of the theme that matters here.
PAGE = """<!doctype html><style>{style} * {{ box-sizing: border-box; }} img {{ max-width: 100%; }}</style>
<body style="margin: 0"><div class="md-typeset">
<p><picture><img width="800" height="200" src="images/capsules-light.svg"></picture></p>
<div class="rows"><table><thead><tr>{row}</tr></thead><tbody><tr>{row}</tr></tbody></table></div></div>"""


def test_the_first_picture_and_the_models_table_fit_a_telephone() -> None:
    from playwright.sync_api import sync_playwright

    assert '<div class="rows" markdown>' in (ROOT / "docs" / "models" / "index.md").read_text(encoding="utf-8")
    style = (ROOT / "docs" / "style.css").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_content(PAGE.format(style=style, row=ROW))
        parts = "[document.documentElement, ...document.querySelectorAll('img, table')]"
        widths = page.evaluate(f"{parts}.map((each) => each.scrollWidth)")
        assert max(widths) <= 390, widths
        browser.close()
