"""Capsule networks for scikit-learn: ``from torchcaps.sklearn import CapsuleClassifier``."""

from torchcaps.errors import need_extra

need_extra("sklearn", "CapsuleClassifier", "sklearn")

from torchcaps.sklearn.classifier import CapsuleClassifier  # noqa: E402

__all__ = ["CapsuleClassifier"]
