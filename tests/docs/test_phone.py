"""Style of the documentation on a telephone: the first picture, the models table and the table of verdicts fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.browser import FLAGS, find_chromium
from torchcaps.reproduce.verdicts import VERDICTS

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


VERDICTS_PAGE = """<!doctype html><style>html {{ font-size: 125%; }} table {{ border-spacing: 0; }} {style}</style>
<body style="margin: 0 0.8rem; font-family: sans-serif">
<div class="md-typeset"><table><tr>{head}</tr><tr>{row}</tr></table></div>"""


def test_the_table_of_verdicts_fits_a_telephone() -> None:
    from playwright.sync_api import sync_playwright

    style = (ROOT / "docs" / "style.css").read_text(encoding="utf-8")
    head = "".join(f"<th>{name}</th>" for name in ("paper", *VERDICTS, "core-hours"))
    row = "".join(f"<td>{text}</td>" for text in ("hinton2018", *["12"] * len(VERDICTS), "86"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_content(VERDICTS_PAGE.format(style=style, head=head, row=row))
        assert page.evaluate("document.querySelector('table').scrollWidth") <= 390 - 2 * 0.8 * 20  # the margins
        browser.close()
