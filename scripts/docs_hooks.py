"""MkDocs hooks that make the pages independent of scripts and fonts from other hosts.

Equations (```math fences, and ``.. math::`` in docstrings) are converted to MathML, which browsers render natively.
Pictures with a light and a dark version follow the theme of the page, not only that of the system.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

FENCE = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^\.\. math::[ \n](.*?)(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r":[a-z]+:`([^`]*)`")
PICTURE = re.compile(
    r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="([^"]*)">'
    r'<img alt="([^"]*)" src="([^"]*)"[^>]*></picture>'
)


def as_mathml(tex: str) -> str:
    """Convert a display equation to MathML; clauses separated by a quad wrap to the next line if necessary."""
    tex = re.sub(r"\\(begin|end)\{aligned\}|\\phantom\{\\text\{[^}]*\}\}|&", " ", tex)
    lines = [[clause for clause in re.split(r"\\q?quad\b", line) if clause.strip()] for line in tex.split(r"\\")]
    return "".join(
        f'<div class="equation">{" ".join(convert(" ".join(clause.split()), display="block") for clause in line)}</div>'
        for line in lines
        if line
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Convert equations and pictures; MkDocs calls this for each page."""
    markdown = FENCE.sub(lambda found: as_mathml(found[1]), markdown)
    return PICTURE.sub(r"![\2](\3#only-light) ![\2](\1#only-dark)", markdown)


class Docstrings(griffe.Extension):
    """Convert reStructuredText in docstrings to Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = DIRECTIVE.sub(lambda found: f"\n{as_mathml(textwrap.dedent(found[1]))}\n\n", obj.docstring.value)
            text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", text).replace("Args of a call:", "Other Parameters:")
            obj.docstring.value = ROLE.sub(r"`\1`", text)
