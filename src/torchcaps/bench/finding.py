"""One line of what ``torchcaps doctor`` has to say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do if that is a problem.

    ``detail`` marks what is for another program alone: a person would not find the rest among so many.
    """

    topic: str
    found: str
    advice: str = ""
    detail: bool = False
