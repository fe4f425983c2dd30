"""YAML from anybody's file: plain values only, of bounded size.

Beyond what ``yaml.safe_load`` refuses, tags and aliases are refused too: a tag can only make a surprise of a value, and
a few lines of aliases can stand for a structure of billions. Numbers must be finite and fit into 64 bits. Dates,
octal numbers (``010`` is 8) and numbers in base 60 (``1:30`` is 90) are refused, because YAML 1.1 reads them as
something else than what most people mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from torchcaps.errors import TorchcapsError
from torchcaps.files import finite_number, read_text, whole_number

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

    def construct_whole(self, node: Any) -> int:
        text = node.value.replace("_", "")
        digits = text.lstrip("+-")
        if ":" in text or (digits.startswith("0") and digits[1:].isdigit()):
            raise yaml.YAMLError(f"'{text[:50]}' is a number in base 60 or 8: write it in base 10, or put it in quotes")
        if digits[:2] in ("0x", "0b"):
            text = str(int(text, 0)) if len(text) <= 67 else text
        return whole_number(text)

    def construct_finite(self, node: Any) -> float:
        if ":" in node.value:
            raise yaml.YAMLError(f"'{node.value[:50]}' is a number in base 60: write it in base 10")
        return finite_number(node.value.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))

    def refuse_date(self, node: Any) -> None:
        raise yaml.YAMLError(f"'{node.value[:50]}' is a date, which no setting is: put it in quotes")


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_whole)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader.construct_finite)
PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.refuse_date)


def parse_yaml(text: str, source: str) -> Any:
    """The value of a text, or one sentence about ``source`` that says what is wrong."""
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number out of range
        reason = " ".join(str(error).split())[:300]
        raise TorchcapsError(f"{source} is not readable YAML: {reason}") from error


def read_yaml(path: Path) -> Any:
    """The value in a file."""
    return parse_yaml(read_text(path, most=MOST_BYTES), str(path))
