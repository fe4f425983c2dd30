"""Screenshots of every panel of the demo page, in both themes, at desktop and phone size.

Usage: python -m tests.helpers.demo_screenshots ADDRESS FOLDER

Start the page first: torchcaps demo --no-browser. Look at the screenshots after every change to the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.helpers.browser import FLAGS, find_chromium

PANELS = ("draw", "dimensions", "routing", "transform", "attack", "pairs", "results")
SCREENS = {"desk": (1280, 900), "telephone": (390, 844)}


def show(page: Page, panel: str) -> None:
    """Open a panel and fill it with content."""
    page.wait_for_selector("body[data-ready]")
    page.wait_for_load_state("networkidle")
    if panel == "routing":
        page.locator(".panel:not([hidden])").get_by_label("Network").select_option(label="Matrix capsules")
    elif panel == "transform":
        page.get_by_role("slider", name="Rotate").fill("30")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)  # until bars stand still


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for screen, (width, height) in SCREENS.items():
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
                for panel in PANELS:
                    page.goto(f"{address}/#{panel}")
                    page.reload()  # a change of the part behind # alone loads nothing
                    show(page, panel)
                    page.screenshot(path=folder / f"{panel}-{screen}-{theme}.png", full_page=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
