"""Attacks: a guarded base, one file each, and a registry of their records."""

from torchcaps.attacks import autoattack, fgsm, pgd, square, transfer, universal  # noqa: F401  (each registers its attacks)
from torchcaps.attacks.base import Attack, AttackRecord, attacks, create_attack
from torchcaps.attacks.logits import STRONGEST, views
from torchcaps.attacks.result import AttackResult

__all__ = ["STRONGEST", "Attack", "AttackRecord", "AttackResult", "attacks", "create_attack", "views"]
