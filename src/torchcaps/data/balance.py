"""How many pictures of each class there are, and what about that a user should know before training."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchcaps.data.base import MemoryImages

FEW = 20  # pictures of a class to train on: with fewer, accuracy is mostly luck
LOPSIDED = 3.0  # times as many pictures of one class as of another
NAMED = 5  # classes in one sentence


@dataclass(frozen=True)
class Balance:
    """Pictures of each class, for training and for test."""

    names: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]

    @property
    def guess(self) -> float:
        """The share of the test pictures that is right when the commonest class is always the answer."""
        commonest = self.train.index(max(self.train))
        return self.test[commonest] / sum(self.test)

    def warnings(self) -> list[str]:
        """A sentence for what makes the figures less worth: classes with few pictures, and much unlike numbers."""
        said = []
        few = [f"'{name}' ({count})" for name, count in zip(self.names, self.train, strict=True) if count < FEW]
        if few:
            more = f" and {len(few) - NAMED} more" if len(few) > NAMED else ""
            said.append(
                f"fewer than {FEW} pictures to train on: {', '.join(few[:NAMED])}{more}. Accuracy is then mostly luck: "
                "add pictures, or leave the class out"
            )
        if max(self.train) > LOPSIDED * min(self.train):
            most, least = (self.train.index(pick(self.train)) for pick in (max, min))
            said.append(
                f"lopsided: '{self.names[most]}' has {self.train[most]} pictures to train on and '{self.names[least]}' "
                f"{self.train[least]}. Always answering '{self.names[most]}' is right in {self.guess:.0%} of the test: "
                "compare with that, or make the classes alike"
            )
        return said


def class_balance(train: MemoryImages, test: MemoryImages) -> Balance:
    """Count both parts."""
    counts = (torch.bincount(each.labels, minlength=len(each.class_names)).tolist() for each in (train, test))
    of_train, of_test = (tuple(each) for each in counts)
    return Balance(train.class_names, of_train, of_test)
