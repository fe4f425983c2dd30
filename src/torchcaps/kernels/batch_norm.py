r"""Batch normalization, an optional addition and ReLU on a CPU: two passes over the feature maps in each direction.

.. math:: y = \max(0, (x - \mu) s + \beta + z), \quad s = \gamma / \sqrt{\sigma^2 + \epsilon}

PyTorch's need four passes forward and five backward, which in a small network take as long as its convolutions, and
more with z, the shortcut around a residual block. The sign of y is computed again in the backward pass, so that only x
and z are kept. The plain definition is ``F.relu(norm(x) + z)`` with ``nn.BatchNorm2d``; a test compares the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.kernels.dispatch import on_threads, runs_compiled, runs_fused

LANES = 16  # numbers that are computed at once


def batch_norm_relu(maps: Tensor, norm: nn.BatchNorm2d, added: Tensor | None = None) -> Tensor:
    """``(norm(maps) + added).relu()``, with the same effect on the running statistics: (B, C, H, W) to the same.

    >>> batch_norm_relu(torch.tensor([-1.0, 3.0]).view(2, 1, 1, 1), nn.BatchNorm2d(1)).flatten()
    tensor([0.0000, 1.0000], grad_fn=<ViewBackward0>)
    """
    fits = added is None or (added.shape == maps.shape and runs_compiled(added))
    if not (fits and _applies(maps, norm)):
        return F.relu(norm(maps) if added is None else norm(maps) + added)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    moments = _batch_moments(maps, norm) if norm.training else torch.stack([norm.running_mean, norm.running_var])
    given = maps, norm.weight, norm.bias, added, moments, norm.training, norm.eps
    result: Tensor = _BatchNormReLU.apply(*given)  # type: ignore[no-untyped-call]
    return result


def has_hooks(layer: nn.Module) -> bool:
    """Whether something is to run before or after a layer, which must then be called by itself."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return any(hooks)


def _batch_moments(maps: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """Mean and variance of each channel, (2, C); they also update the running statistics, as in ``nn.BatchNorm2d``."""
    from torchcaps.kernels.batch_norm_loops import combine_moments, image_moments

    source = _lanes(maps)
    means, deviations = (np.empty((len(maps), *source.shape[2:]), np.float32) for _ in range(2))
    on_threads(lambda first, last: image_moments(source, means, deviations, first, last), len(maps))
    moments = torch.empty(2, maps.shape[1])
    combine_moments(means, deviations, source.shape[1], moments.numpy())
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    count = maps.numel() // maps.shape[1]
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(moments[0], norm.momentum)
        norm.running_var.lerp_(moments[1] * (count / (count - 1)), norm.momentum)
    return moments


def _applies(maps: Tensor, norm: nn.BatchNorm2d) -> bool:
    """Whether the loops support this case: whole lanes, running statistics, float32 on a CPU, no hooks."""
    if has_hooks(norm):
        return False
    # A subclass computes something else, such as statistics over several processes.
    if type(norm) is not nn.BatchNorm2d or not (norm.affine and norm.track_running_stats) or norm.momentum is None:
        return False
    if not runs_fused(maps, norm.weight):
        return False
    usual = maps.ndim == 4 and maps.shape[1] == norm.num_features and maps.numel() > norm.num_features
    return usual and maps.shape[2:].numel() % _period(norm.num_features) == 0


class _BatchNormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,
        added: Tensor | None,
        moments: Tensor,
        training: bool,
        epsilon: float,
    ) -> Tensor:
        from torchcaps.kernels.batch_norm_loops import normalize_and_rectify

        source = _lanes(maps)
        result = torch.empty(source.shape)
        given = source, *_channels(source, moments, weight, bias, epsilon), _lanes_or_none(added), result.numpy()
        on_threads(lambda first, last: normalize_and_rectify(*given, first, last), len(maps))
        ctx.save_for_backward(maps, weight, bias, added, moments)
        ctx.settings = training, epsilon
        return _as_maps(result, maps)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        from torchcaps.kernels.batch_norm_loops import combine_gradients, image_gradient_sums, normalized_gradients

        maps, weight, bias, added, moments = ctx.saved_tensors
        training, epsilon = ctx.settings
        wanted = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():  # create_graph=True
            known = (None, None) if training else moments.unbind()
            normal = F.batch_norm(maps, known[0], known[1], weight, bias, training, 0.0, epsilon)
            rectified = F.relu(normal if added is None else normal + added)
            inputs = [each for each, needed in zip((maps, weight, bias, added), wanted, strict=True) if needed]
            again = iter(torch.autograd.grad(rectified, inputs, slopes, create_graph=True))
            return *(next(again) if needed else None for needed in wanted), None, None, None
        source, batch = _lanes(maps), len(maps)
        channels = _channels(source, moments, weight, bias, epsilon)
        given = source, _lanes(slopes), *channels, _lanes_or_none(added)
        sums, products = (np.zeros((batch, *source.shape[2:]), np.float32) for _ in range(2))
        if training or any(wanted[1:3]):
            on_threads(lambda first, last: image_gradient_sums(*given, sums, products, first, last), batch)
        share = maps.shape[1] / maps.numel() if training else 0.0  # running statistics do not depend on the maps
        dparameters, rest = torch.empty(2, maps.shape[1]), np.empty((2, *source.shape[2:]), np.float32)
        numbers = moments.numpy(), weight.detach().numpy(), epsilon, share
        combine_gradients(sums, products, *numbers, dparameters.numpy(), rest)
        dmaps, dadded = torch.empty(source.shape), torch.empty(given[-1].shape)
        if wanted[0] or wanted[3]:
            results = *rest, dmaps.numpy(), dadded.numpy()
            on_threads(lambda first, last: normalized_gradients(*given, *results, first, last), batch)
        found = _as_maps(dmaps, maps), *dparameters.unbind(), None if added is None else _as_maps(dadded, maps)
        return *(each if needed else None for each, needed in zip(found, wanted, strict=True)), None, None, None


def _period(channels: int) -> int:
    """Pixels after which channels and lanes begin together again: 1 for 16 and 32 channels, 8 for 10."""
    return LANES // math.gcd(channels, LANES)


def _lanes(maps: Tensor) -> Any:
    """Maps (B, C, H, W) as an array (B, H*W/period, C*period/16, 16): a view if they are channels-last."""
    rows = maps.detach().permute(0, 2, 3, 1).contiguous()
    return rows.view(len(maps), -1, maps.shape[1] * _period(maps.shape[1]) // LANES, LANES).numpy()


def _lanes_or_none(maps: Tensor | None) -> Any:
    """``_lanes``, or an array without images for None."""
    return torch.empty(0, 0, 0, LANES).numpy() if maps is None else _lanes(maps)


def _channels(lanes: Any, moments: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Any:
    """Mean, scale and offset of each channel, as an array (3, C*period/16, 16)."""
    from torchcaps.kernels.batch_norm_loops import spread_channels

    result = np.empty((3, *lanes.shape[2:]), np.float32)
    spread_channels(moments.numpy(), *(each.detach().contiguous().numpy() for each in (weight, bias)), epsilon, result)
    return result


def _as_maps(rows: Tensor, maps: Tensor) -> Tensor:
    batch, channels, height, width = maps.shape
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)
