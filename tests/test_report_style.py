"""Reports in Chromium: wide tables can be read on any screen."""

from __future__ import annotations

import pytest

from tests.helpers.browser import FLAGS, find_chromium
from torchcaps.html import html_cell, html_page, html_table

CHROMIUM = find_chromium()
pytestmark = [pytest.mark.process, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]


@pytest.mark.parametrize("columns", [3, 10, 30])
def test_a_wide_table_uses_the_window_and_then_shows_a_scroll_bar(columns: int) -> None:
    from playwright.sync_api import sync_playwright

    row = [html_cell("a network"), *(html_cell(f"98.{number:02} ± 0.3") for number in range(columns - 1))]
    body = f"<h1>Report</h1>{html_table(row, [row] * 3)}"
    measure = """() => {
        const table = document.querySelector('.table'), frame = table.getBoundingClientRect();
        const bar = table.offsetHeight - table.clientHeight;
        const scrolls = table.scrollWidth > table.clientWidth;
        return [frame.left, frame.right, scrolls, bar, document.documentElement.scrollWidth];
    }"""
    with sync_playwright() as playwright:
        hidden = ["--hide-scrollbars"]  # what Playwright adds
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, ignore_default_args=hidden)
        page = browser.new_page()
        page.set_content(html_page("Report", body))
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 800})
            left, right, scrolls, bar, whole = page.evaluate(measure)
            assert left >= 0
            assert right <= whole == width, "the page itself does not scroll sideways"
            assert (bar > 0) == scrolls, "a table that is cut has a visible scroll bar"
            assert not (columns == 10 and width == 1200 and scrolls), "ten columns fit on a desktop"
        browser.close()


def test_the_long_name_of_a_model_wraps() -> None:
    """A comparison names a model with all of its settings."""
    from playwright.sync_api import sync_playwright

    name = "capsnet:routing=mine,routing_options.sharpness=2.0,learning_rate=0.002,reconstruction_weight=0.005"
    row = [html_cell(name), *(html_cell("81.94 ± 27.39") for _ in range(5))]
    body = f"<h1>{name}</h1><h2>Reconstructions by {name}</h2><p>{name} minus capsnet</p>{html_table(row, [row] * 3)}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.set_content(html_page("Report", body))
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") == width
        page.set_viewport_size({"width": 1200, "height": 800})
        assert page.evaluate("(table => table.scrollWidth <= table.clientWidth)(document.querySelector('.table'))")
        browser.close()
