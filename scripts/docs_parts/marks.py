"""Where a made part stands in a page: between two marks, of which the first says what belongs there.

<!-- made by scripts/docs_pages.py: equation dynamic -->
...
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

MARK = re.compile(r"<!-- made by scripts/docs_pages\.py: ([^\n]*?) -->\n(.*?)<!-- end -->", re.DOTALL)
Maker = Callable[..., str]


def filled(text: str, makers: Mapping[str, Maker], where: str) -> str:
    """A page with all its parts made anew; ``where`` is its name, for messages."""

    def make(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        if name not in makers:
            raise SystemExit(f"{where} asks for '{name}', which nobody makes: one of {', '.join(makers)}")
        part = makers[name](*arguments).strip()
        return f"<!-- made by scripts/docs_pages.py: {found[1]} -->\n\n{part}\n\n<!-- end -->"

    if text.count("<!-- made by scripts/docs_pages.py:") != len(MARK.findall(text)):
        raise SystemExit(f"{where} has lost an '<!-- end -->'")
    return MARK.sub(make, text)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table whose last ``numbers`` columns are figures."""
    rule = ["---"] * (len(columns) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, rule, *rows])
