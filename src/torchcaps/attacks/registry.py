"""Attacks by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchcaps.attacks.base import Attack
from torchcaps.errors import TorchcapsError
from torchcaps.registry import Registry


@dataclass(frozen=True)
class AttackRecord:
    """An attack by name, with what it needs. ``build`` takes settings by name, ``norm`` among them."""

    name: str
    description: str
    paper: str
    build: Callable[..., Attack]
    norms: tuple[str, ...] = ("linf", "l2")
    white_box: bool = True  # sees gradients of the model under attack
    targeted: bool = False
    needs_source: bool = False  # another trained model
    extra: str = ""  # the optional dependencies to install: torchcaps[extra]


attacks: Registry[AttackRecord] = Registry("attack")


def create_attack(name: str, **options: Any) -> Attack:
    """Build an attack by name.

    >>> create_attack("bim", norm="l2", steps=5).norm.name
    'l2'
    """
    record = attacks.get(name)
    try:
        return record.build(**options)
    except TypeError as error:
        raise TorchcapsError(f"attack '{name}' does not take these settings: {error}") from error
