"""A real browser for the tests of the page: Debian's or the system's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil

CANDIDATES = ("chromium", "chromium-browser", "google-chrome")
# No sandbox, since tests may run as root; and a browser that asks nobody for anything.
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
    """Path of a Chromium: the one that TORCHCAPS_CHROMIUM names, or one on the search path."""
    named = os.environ.get("TORCHCAPS_CHROMIUM")
    return named or next((path for name in CANDIDATES if (path := shutil.which(name))), None)
