"""HTML pages that need nothing else: one skeleton and one style for every report."""

from __future__ import annotations

import html
from importlib.resources import files

from torchcaps.compare.figures import Picture


def html_page(title: str, body: str, *, style: str = "") -> str:
    """A whole page, with the style of all reports and what one of them adds to it."""
    shared = files("torchcaps.compare").joinpath("report.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>torchcaps: {html.escape(title)}</title>\n<style>{shared}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_figure(picture: Picture, heading: str = "h2") -> str:
    """A picture that follows the theme of the page, under its title and above its caption."""
    title, caption = html.escape(picture.title), html.escape(picture.caption)
    warning = f"<p class='warning'>{html.escape(picture.warning)}</p>" if picture.warning else ""
    return (
        f"<{heading}>{title}</{heading}>\n{warning}<figure><picture>"
        f"<source media='(prefers-color-scheme: dark)' srcset='{picture.dark}'>"
        f"<img alt='{title}' src='{picture.light}'></picture>"
        f"<figcaption>{caption}</figcaption></figure>"
    )
