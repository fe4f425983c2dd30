"""Targeted FGSM: one step towards a wrong class, for every wrong class.

hinton2018, section 6 and figure 3: the success of the attack is averaged over the targets.
"""

from __future__ import annotations

from torchcaps.attacks.fgsm import FGSM
from torchcaps.attacks.registry import AttackRecord, attacks


class TargetedFGSM(FGSM):
    """x - epsilon sign(gradient of the cross-entropy with the target); ``hits`` says which targets were reached."""

    targeted = True


attacks.add(
    AttackRecord("targeted-fgsm", "one step towards each wrong class", "hinton2018", TargetedFGSM, targeted=True)
)
