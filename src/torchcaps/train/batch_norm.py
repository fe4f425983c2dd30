r"""Batch normalisation over a batch that several processes share.

.. math:: \mu = \frac1N \sum_r \sum_{x \in r} x, \qquad \sigma^2 = \frac1N \sum_r \sum_{x \in r} (x - \mu)^2

The sums run over all processes r, in the forward pass for the statistics and in the backward pass for their gradients,
so that every image sees the whole batch as it does in one process. torch's own SyncBatchNorm does this on CUDA alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcaps.errors import TorchcapsError


class AllReduceSum(torch.autograd.Function):
    """The sum of a tensor over all processes; what flows back is summed too, since all of them used the sum."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        together = value.clone()
        distributed.all_reduce(together)
        return together

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        together = gradient.clone()
        distributed.all_reduce(together)
        return together


def all_reduce_sum_autograd(value: Tensor) -> Tensor:
    """See :class:`AllReduceSum`."""
    together: Tensor = AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return together


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d with the statistics of all processes; made of one by :func:`share_statistics`.

    ``shared`` is False for a batch that every process computes as a whole.
    """

    shared: bool

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        if not self.training or not self.shared:
            return super().forward(input)
        values = input.float()
        dims = (0, 2, 3)
        own = values.new_full((1,), values.numel() / values.shape[1])
        sums = all_reduce_sum_autograd(torch.cat([values.sum(dims), own]))
        count = sums[-1].detach()
        mean = sums[:-1] / count  # (C,)
        centred = values - mean[:, None, None]
        variance = all_reduce_sum_autograd(centred.square().sum(dims)) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), share)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), share)
        normal = centred * (variance + self.eps).rsqrt()[:, None, None]
        if self.affine:
            normal = normal * self.weight[:, None, None] + self.bias[:, None, None]
        return normal.to(input.dtype)


def share_statistics(model: nn.Module) -> None:
    """Let every batch normalisation of a model see the batches of all processes. Names of its weights stay."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
            module.shared = True  # type: ignore[assignment]
        elif isinstance(module, _BatchNorm):
            raise TorchcapsError(
                f"{type(module).__name__} cannot be trained by several processes, which know the statistics of "
                "BatchNorm2d alone: train with --devices 1, or use BatchNorm2d"
            )


def set_shared(model: nn.Module, shared: bool) -> None:
    """Whether the next batch is shared by the processes, or computed by each as a whole."""
    for module in model.modules():
        if isinstance(module, SharedBatchNorm2d):
            module.shared = shared
