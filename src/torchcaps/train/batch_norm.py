r"""Batch normalization over a batch that several processes share.

.. math:: \mu = \frac1N \sum_r \sum_{x \in r} x, \qquad \sigma^2 = \frac1N \sum_r \sum_{x \in r} (x - \mu)^2

The sums run over all processes r, in the forward pass for the statistics and in the backward pass for their gradients,
so the result is that of the whole batch in one process. torch's own SyncBatchNorm does this on CUDA only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcaps.errors import TorchcapsError


class AllReduceSum(torch.autograd.Function):
    """All-reduce sum in the forward pass and, for the gradient, in the backward pass."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total


def all_reduce_sum_autograd(value: Tensor) -> Tensor:
    """Sum a tensor over all processes, with gradient."""
    total: Tensor = AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d with the statistics of all processes; :func:`share_statistics` converts a BatchNorm2d.

    ``shared`` is False for a batch of which every process computes all images.
    """

    shared: bool

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (B, C, H, W)."""
        if not self.training or not self.shared:
            return super().forward(input)
        values = input.float()
        dims = (0, 2, 3)
        own = values.new_full((1,), values.numel() / values.shape[1])
        sums = all_reduce_sum_autograd(torch.cat([values.sum(dims), own]))
        count = sums[-1].detach()
        mean = sums[:-1] / count  # (C,)
        centered = values - mean[:, None, None]
        variance = all_reduce_sum_autograd(centered.square().sum(dims)) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), share)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), share)
        normal = centered * (variance + self.eps).rsqrt()[:, None, None]
        if self.affine:
            normal = normal * self.weight[:, None, None] + self.bias[:, None, None]
        return normal.to(input.dtype)


def share_statistics(model: nn.Module) -> None:
    """Convert every BatchNorm2d of a model to :class:`SharedBatchNorm2d`; the names of the weights do not change."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
            module.shared = True  # type: ignore[assignment]
        elif isinstance(module, _BatchNorm):
            raise TorchcapsError(
                f"{type(module).__name__} cannot be trained in several processes, which share the statistics of "
                "BatchNorm2d only: train with --devices 1, or use BatchNorm2d"
            )


def set_shared(model: nn.Module, shared: bool) -> None:
    """Set whether the processes share the next batch, or each computes all of it."""
    for module in model.modules():
        if isinstance(module, SharedBatchNorm2d):
            module.shared = shared
