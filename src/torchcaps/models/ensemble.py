"""Several trained models as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import log_odds
from torchcaps.models.base import Model, Output


class Ensemble(Model):
    """The average of the scores of models for the same images and classes (choi2019, table 1).

    >>> from torchcaps import create_model
    >>> pair = Ensemble([create_model("lenet", size="laptop"), create_model("convnet-avg", size="laptop")])
    >>> pair(torch.zeros(2, 1, 28, 28)).scores.shape
    torch.Size([2, 10])
    """

    def __init__(self, members: Sequence[Model]) -> None:
        if not members:
            raise TorchcapsError("an ensemble needs at least one model, got none")
        kinds = {(member.image_shape, member.classes) for member in members}
        if len(kinds) > 1:
            raise TorchcapsError(f"an ensemble needs models for the same images and classes, got {sorted(kinds)}")
        super().__init__(members[0].image_shape, members[0].classes)
        self.members = nn.ModuleList(members)

    def classify(self, images: Tensor) -> Output:
        scores = torch.stack([member(images).scores for member in self.members]).mean(0)
        return Output(scores, log_odds(scores))
