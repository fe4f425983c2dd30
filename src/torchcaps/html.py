"""Building blocks of the HTML and Markdown reports: page, figure, table, footer and escaping.

A page is one file that loads nothing else: the style sheet and all figures are embedded.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class ThemedFigure:
    """A figure rendered for light and for dark pages (data URLs), with its title, caption and an optional warning."""

    title: str
    caption: str
    light: str
    dark: str
    warning: str = ""
    width: int | None = None  # in CSS pixels; None: that of the image


def data_url(image: bytes, kind: str = "png") -> str:
    """Embed an image (``png`` or ``svg``) as a data URL."""
    return f"data:image/{'svg+xml' if kind == 'svg' else kind};base64,{base64.b64encode(image).decode()}"


def html_page(title: str, body: str, *, style: str = "") -> str:
    """Return a complete page; ``style`` is CSS that follows the style sheet shared by all reports."""
    shared = files("torchcaps").joinpath("report.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>torchcaps: {html.escape(title)}</title>\n<style>{shared}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_figure(figure: ThemedFigure, heading: str = "h2") -> str:
    """Return a figure that follows the color scheme of the page, with its title above and its caption below."""
    title, caption = html.escape(figure.title), html.escape(figure.caption)
    warning = f"<p class='warning'>{html.escape(figure.warning)}</p>" if figure.warning else ""
    width = f" width='{figure.width}'" if figure.width else ""
    return (
        f"<{heading}>{title}</{heading}>\n{warning}<figure><picture>"
        f"<source media='(prefers-color-scheme: dark)' srcset='{figure.dark}'>"
        f"<img alt='{title}'{width} src='{figure.light}'></picture>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def html_cell(text: str, *, scope: str = "", css_class: str = "") -> str:
    """Return a table cell with escaped text; ``scope`` (``col`` or ``row``) makes it a header cell."""
    tag = f"th scope='{scope}'" if scope else "td"
    kind = f" class='{css_class}'" if css_class else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag[:2]}>"


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], *, css_class: str = "") -> str:
    """Return a table that scrolls sideways on narrow screens. All cells are HTML elements (see :func:`html_cell`)."""
    kind = f" class='{css_class}'" if css_class else ""
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return (
        f"<div class='table'><table{kind}><thead><tr>{''.join(head)}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def html_list(items: Iterable[str], *, tag: str = "ul", css_class: str = "") -> str:
    """Return a list with escaped items, or nothing if there are none."""
    kind = f" class='{css_class}'" if css_class else ""
    body = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f"<{tag}{kind}>{body}</{tag}>\n" if body else ""


def html_footer(environment: Mapping[str, Any]) -> str:
    """Return the footer that names the command, machine, torch version and commit (see ``describe_environment``)."""
    command, processor, threads = (html.escape(str(environment[key])) for key in ("command", "processor", "threads"))
    return (
        f"<footer>Made by <code>{command}</code> on {processor}, {threads} thread{'' if threads == '1' else 's'}, "
        f"torch {html.escape(str(environment['versions']['torch']))}, "
        f"commit {html.escape(str(environment['commit'])[:12])}.</footer>"
    )


def escape_markdown(text: str) -> str:
    """Escape everything in a text that Markdown or HTML would interpret."""
    escaped = html.escape(text, quote=False)
    for sign in "\\|*_`[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, align: str = "---:") -> str:
    """Return a Markdown table: the first column is left-aligned, the others are aligned as given."""
    lines = [head, ["---", *[align] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
