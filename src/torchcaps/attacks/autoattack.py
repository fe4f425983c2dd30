"""AutoAttack: an ensemble of four parameter-free attacks, run by the package pyautoattack.

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
from torchcaps.errors import TorchcapsError, install_command

PACKAGE_NORMS = {"linf": "Linf", "l2": "L2"}
SILENT_LOGGER = logging.getLogger("torchcaps.attacks.autoattack")
SILENT_LOGGER.setLevel(logging.CRITICAL)
PARTS = ("apgd-ce", "apgd-t", "fab-t", "square")


class _Logits(nn.Module):
    """The wrapped model as the package expects it: pixels scaled to [0, 1] in, logits out, every pass counted."""

    def __init__(self, wrapper: ModelWrapper) -> None:
        super().__init__()
        self.wrapper = wrapper

    def forward(self, images: Tensor) -> Tensor:
        low, high = self.wrapper.bounds
        return self.wrapper.view.read(self.wrapper.query(low + (high - low) * images))


class AutoAttack(Attack):
    """APGD on the cross-entropy, targeted APGD, targeted FAB and Square, each on the images that resisted so far.

    Args:
        epsilon, norm: as in :class:`Attack`.
        steps: iterations of the first three attacks; the standard version has 100.
        queries: queries of Square; the standard version has 5,000.
    """

    all_views = False

    def __init__(
        self, *, epsilon: float | None = None, norm: str = "linf", steps: int = 100, queries: int = 5000
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        self.steps, self.queries = steps, queries
        self.package = _import_package()

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        if epsilon == 0:
            return images  # the package divides by epsilon
        low, high = wrapper.bounds
        unit = (images - low) / (high - low)
        perturbed = unit.clone()
        active = torch.arange(len(images), device=images.device)
        for part in PARTS:
            suite = self._suite(wrapper, part, epsilon / (high - low), images.device)
            if suite is None:
                continue
            trace = sys.gettrace()  # the package replaces the trace function of a debugger
            try:
                found, predictions = suite.run_standard_evaluation(unit[active], labels[active], batch_size=len(active))
            except BudgetExhausted:
                break
            finally:
                sys.settrace(trace)
            perturbed[active] = found
            active = active[predictions == labels[active]]
            if not len(active):
                break
        return low + (high - low) * perturbed

    def _suite(self, wrapper: ModelWrapper, part: str, epsilon: float, device: torch.device) -> Any:
        """Return the package's attack with the settings of the standard version; None if there are too few classes."""
        classes = wrapper.model.classes
        if part == "apgd-t" and classes < 4:  # its loss compares four classes
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
        # Its warnings about zero gradients and random outputs are covered by torchcaps.evaluate.sanity.
        suite.logger = suite.apgd.logger = suite.apgd_targeted.logger = SILENT_LOGGER
        for each in (suite.apgd, suite.apgd_targeted, suite.fab):
            each.n_restarts, each.n_iter = 1, self.steps
        suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = min(9, classes - 1)
        suite.square.n_queries = self.queries
        return suite


def _import_package() -> Any:
    try:
        import pyautoattack
    except ModuleNotFoundError as error:
        raise TorchcapsError(f"autoattack needs the package pyautoattack: {install_command('attacks')}") from error
    return pyautoattack


attacks.add(
    AttackRecord("autoattack", "APGD, targeted APGD, FAB and Square in turn", "Croce 2020", AutoAttack, extra="attacks")
)
