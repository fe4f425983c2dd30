"""Attacks: a guarded base, one file each, and a registry of their records."""

from torchcaps.attacks import (  # noqa: F401  (each registers its attack)
    autoattack,
    bim,
    fgsm,
    pgd,
    square,
    targeted_fgsm,
    transfer,
    universal,
)
from torchcaps.attacks.base import Attack
from torchcaps.attacks.logits import STRONGEST, views
from torchcaps.attacks.registry import AttackRecord, attacks, create_attack
from torchcaps.attacks.result import AttackResult

__all__ = ["STRONGEST", "Attack", "AttackRecord", "AttackResult", "attacks", "create_attack", "views"]
