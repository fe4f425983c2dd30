"""The optimiser of a run, and what it must not be given."""

from __future__ import annotations

import math

import torch
from torch import nn, optim

from torchcaps.train.checkpoint import whole
from torchcaps.train.config import RunConfig


def make_optimizer(model: nn.Module, config: RunConfig) -> optim.Optimizer:
    """The optimiser by name; its learning rate is set anew at every step."""
    if config.optimizer == "rmsprop":
        return optim.RMSprop(model.parameters(), lr=config.learning_rate, alpha=0.9)
    return optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)


def find_trouble(loss: float, model: nn.Module) -> str | None:
    """One phrase if the loss or a gradient is not finite, else None."""
    if not math.isfinite(loss):
        return f"the loss became {loss}"
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = whole(nn.utils.get_total_norm(gradients))
    return None if torch.isfinite(norm) else f"the gradient became {norm.item()}"
