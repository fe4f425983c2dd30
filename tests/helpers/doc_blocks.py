"""Fenced code blocks of README and the documentation, page by page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
TYPED = ("sh", "python")  # run by the tests
SHOWN = ("text", "math", "yaml", "json", "csv", "html")  # not run


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, location and content."""

    kind: str
    where: str
    text: str

    def commands(self) -> list[str]:
        """The commands of a shell block; a backslash continues a command on the next line."""
        joined = self.text.replace("\\\n", " ")
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines()]
        return [line for line in lines if line]


def blocks_in(page: Path) -> list[Block]:
    """All fenced blocks of a page; an unknown language is an error."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        where = f"{page.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}"
        kind = match["kind"]
        if kind not in TYPED + SHOWN:
            raise ValueError(f"{where}: a block of kind '{kind}': expected one of {', '.join(TYPED + SHOWN)}")
        found.append(Block(kind, where, match["text"]))
    return found


def typed_pages() -> list[Path]:
    """Pages with commands or Python blocks."""
    return [page for page in PAGES if any(block.kind in TYPED for block in blocks_in(page))]


def inline_commands(page: Path) -> list[str]:
    """Calls of torchcaps inside a sentence or a table."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.findall(r"`(torchcaps [^`\n]+)`", text)
