"""Find a Chromium for the tests of the demo page, driven by Playwright."""

from __future__ import annotations

import os
import shutil

CANDIDATES = ("chromium", "chromium-browser", "google-chrome")
# No sandbox, because tests may run as root; no background network requests.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """Path of a Chromium: TORCHCAPS_CHROMIUM, or the first on PATH."""
    named = os.environ.get("TORCHCAPS_CHROMIUM")
    return named or next((path for name in CANDIDATES if (path := shutil.which(name))), None)
