"""Dropout whose mask is a function of a seed and the element's number, computed again in the backward pass.

PyTorch draws one random number after the other on a CPU, which for a small network takes longer than its convolutions.
Here a hash of the number decides about each element, so that the loop vectorizes, and no mask is stored. The seed comes
from PyTorch's generator. The plain definition is ``torch.nn.functional.dropout``, with other random numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled

BLOCK = 4096  # elements


def dropout(values: Tensor, probability: float, training: bool) -> Tensor:
    """Zero elements with a probability and scale the others by 1 / (1 - probability), in training only.

    >>> _ = torch.manual_seed(0)
    >>> dropout(torch.ones(2, 8), 0.5, True)
    tensor([[0., 2., 2., 0., 2., 2., 0., 2.],
            [2., 0., 0., 2., 2., 2., 0., 2.]])
    """
    if not training or not 0 < probability < 1 or not (fused_is_chosen() and runs_compiled(values)):
        return F.dropout(values, probability, training)
    dropped: Tensor = _Dropout.apply(values, probability, int(torch.randint(2**62, ())))  # type: ignore[no-untyped-call]
    return dropped


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, probability: float, seed: int) -> Tensor:
        ctx.settings = probability, seed
        return _masked(values, probability, seed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            return gradient * _masked(torch.ones_like(gradient), *ctx.settings), None, None
        return _masked(gradient, *ctx.settings), None, None


def _masked(values: Tensor, probability: float, seed: int) -> Tensor:
    from torchcaps.kernels.dropout_loops import mask_elements

    source = values.detach().contiguous()
    target = torch.empty_like(source)
    flat, result = source.view(-1).numpy(), target.view(-1).numpy()
    keys = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    limit, scale = np.uint32(round(probability * 2**32)), np.float32(1 / (1 - probability))

    def some_blocks(first: int, last: int) -> None:
        mask_elements(flat, result, *keys, limit, scale, first * BLOCK, min(last * BLOCK, len(flat)))

    on_threads(some_blocks, -(-len(flat) // BLOCK))
    return target
