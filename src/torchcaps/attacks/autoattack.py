"""AutoAttack: four attacks without settings, through the package pyautoattack.

Croce, Hein: Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks, 2020,
https://arxiv.org/abs/2003.01690.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.model_wrapper import BudgetExhausted, ModelWrapper
from torchcaps.errors import TorchcapsError

PACKAGE_NORMS = {"linf": "Linf", "l2": "L2"}
QUIET = logging.getLogger("torchcaps.attacks.autoattack")
QUIET.setLevel(logging.CRITICAL)
PARTS = ("apgd-ce", "apgd-t", "fab-t", "square")


class _Logits(nn.Module):
    """The model as the package wants it: images to logits. Every pass is counted."""

    def __init__(self, wrapper: ModelWrapper) -> None:
        super().__init__()
        self.wrapper = wrapper

    def forward(self, images: Tensor) -> Tensor:
        return self.wrapper.view.read(self.wrapper.query(images))


class AutoAttack(Attack):
    """APGD on the cross-entropy, targeted APGD, targeted FAB and Square, each on what the ones before left standing.

    Args:
        norm: ``linf`` or ``l2``.
        steps: iterations of the first three; the standard version has 100.
        queries: of Square; the standard version has 5,000.
    """

    all_views = False

    def __init__(self, *, norm: str = "linf", steps: int = 100, queries: int = 5000) -> None:
        super().__init__(norm=norm)
        self.steps, self.queries = steps, queries
        self.package = _import_package()

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        if epsilon == 0:
            return images  # the package divides by it
        moved = images.clone()
        live = torch.arange(len(images), device=images.device)
        for part in PARTS:
            suite = self._suite(wrapper, part, epsilon, images.device)
            if suite is None:
                continue
            trace = sys.gettrace()  # the package sets its own, and would leave a debugger without one
            try:
                found, answers = suite.run_standard_evaluation(images[live], labels[live], batch_size=len(live))
            except BudgetExhausted:
                break
            finally:
                sys.settrace(trace)
            moved[live] = found
            live = live[answers == labels[live]]
            if not len(live):
                break
        return moved

    def _suite(self, wrapper: ModelWrapper, part: str, epsilon: float, device: torch.device) -> Any:
        """The package's attack with the standard version's settings; None where there are too few classes for it."""
        classes = wrapper.model.classes
        if part == "apgd-t" and classes < 4:  # its loss is a ratio of differences between four classes
            return None
        suite = self.package.AutoAttack(
            _Logits(wrapper),
            norm=PACKAGE_NORMS[self.norm.name],
            eps=epsilon,
            seed=int(torch.randint(2**31, ())),
            version="custom",
            attacks=[part],
            device=device,
        )
        suite.verbose = False
        # What it has to say about zero gradients and random answers, the sanity checks say with every figure.
        suite.logger = suite.apgd.logger = suite.apgd_targeted.logger = QUIET
        for each in (suite.apgd, suite.apgd_targeted, suite.fab):
            each.n_restarts, each.n_iter = 1, self.steps
        suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = min(9, classes - 1)
        suite.square.n_queries = self.queries
        return suite


def _import_package() -> Any:
    try:
        import pyautoattack
    except ModuleNotFoundError as error:
        raise TorchcapsError(
            "autoattack needs the package pyautoattack: install it with pip install 'torchcaps[attacks]'"
        ) from error
    return pyautoattack


attacks.add(
    AttackRecord("autoattack", "APGD, targeted APGD, FAB and Square in turn", "Croce 2020", AutoAttack, extra="attacks")
)
