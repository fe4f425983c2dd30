"""scikit-learn's estimator checks, with a network that trains quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from torchcaps.sklearn import CapsuleClassifier

TINY = CapsuleClassifier(
    "capsnet",
    options={"filters": 8, "types": 2, "primary_size": 4, "class_size": 4, "kernel": 3, "decoder": "none"},
    epochs=8,
    learning_rate=0.05,
    device="cpu",
)


@parametrize_with_checks([TINY])  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: CapsuleClassifier, check: Callable[[Any], None]) -> None:
    check(estimator)
