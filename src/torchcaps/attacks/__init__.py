"""Adversarial attacks on torchcaps models and on any ``nn.Module`` that returns logits.

:class:`Attack` clips every result to epsilon and to the bounds of the pixels, and measures success on the clipped
images. Each module registers its attacks by name in ``attacks``.
"""

from torchcaps.attacks.autoattack import AutoAttack
from torchcaps.attacks.base import Attack, AttackRecord, attacks, create_attack
from torchcaps.attacks.fgsm import FGSM, TargetedFGSM
from torchcaps.attacks.logits import STRONGEST, LogitsView, logits_views
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.attacks.pgd import BIM, PGD
from torchcaps.attacks.result import AttackResult
from torchcaps.attacks.square import Square
from torchcaps.attacks.transfer import Transfer
from torchcaps.attacks.universal import Universal, UniversalPGD
from torchcaps.attacks.vote import VoteFGSM, VotePGD

__all__ = [
    "BIM",
    "FGSM",
    "PGD",
    "STRONGEST",
    "Attack",
    "AttackRecord",
    "AttackResult",
    "AutoAttack",
    "LogitsView",
    "ModelWrapper",
    "Square",
    "TargetedFGSM",
    "Transfer",
    "Universal",
    "UniversalPGD",
    "VoteFGSM",
    "VotePGD",
    "attacks",
    "create_attack",
    "logits_views",
]
