"""YAML from anybody's file: plain values only, of bounded size.

Beyond what ``yaml.safe_load`` refuses, tags and aliases are refused too: a tag can only make a surprise of a value, and
a few lines of aliases can stand for a structure of billions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from torchcaps.errors import TorchcapsError
from torchcaps.files import read_text

MOST_BYTES = 1 << 20
DEEPEST = 50


class PlainLoader(yaml.SafeLoader):
    """Mappings, lists, words and numbers."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias '*{event.anchor}' is not allowed")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"the tag '{event.tag}' is not allowed")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"it is more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str, source: str) -> Any:
    """The value of a text, or one sentence about ``source`` that says what is wrong."""
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: what looks like a number or a date but is none
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"{source} is not readable YAML: {reason}") from error


def read_yaml(path: Path) -> Any:
    """The value in a file."""
    return parse_yaml(read_text(path, most=MOST_BYTES), str(path))
