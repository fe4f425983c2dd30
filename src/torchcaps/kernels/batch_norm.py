r"""Batch normalization followed by ReLU on a CPU: two passes over the feature maps in each direction.

.. math:: y = \max(0, (x - \mu) s + \beta), \quad s = \gamma / \sqrt{\sigma^2 + \epsilon}

PyTorch's need four passes forward and five backward, which in a small network take as long as its convolutions. The
sign of y is computed again in the backward pass, so that only x is kept. The plain definition is ``F.relu`` of
``nn.BatchNorm2d``; a test compares the two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled

LANES = 16  # channels that are computed at once


def batch_norm_relu(maps: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """``norm(maps).relu()``, with the same effect on the running statistics: (B, C, H, W) to the same.

    >>> batch_norm_relu(torch.tensor([-1.0, 3.0]).view(2, 1, 1, 1), nn.BatchNorm2d(1)).flatten()
    tensor([0.0000, 1.0000], grad_fn=<ViewBackward0>)
    """
    if not _applies(maps, norm):
        return F.relu(norm(maps))
    mean, variance = _batch_statistics(maps, norm) if norm.training else (norm.running_mean, norm.running_var)
    settings = norm.training, norm.eps
    result: Tensor = _BatchNormReLU.apply(maps, norm.weight, norm.bias, mean, variance, *settings)  # type: ignore[no-untyped-call]
    return result


def _batch_statistics(maps: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel; they also update the running statistics, as in ``nn.BatchNorm2d``."""
    from torchcaps.kernels.batch_norm_loops import image_moments

    source = _lanes(maps)
    parts = torch.empty(2, len(maps), *source.shape[2:])
    means, squares = (each.numpy() for each in parts)
    on_threads(lambda first, last: image_moments(source, means, squares, first, last), len(maps))
    of_images, deviations = parts.flatten(2).double()  # (B, C)
    mean = of_images.mean(0)
    count = len(maps) * source.shape[1]
    variance = deviations.sum(0) / count + (of_images - mean).square().mean(0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean.float(), norm.momentum)
        norm.running_var.lerp_((variance * count / (count - 1)).float(), norm.momentum)
    return mean.float(), variance.float()


def _applies(maps: Tensor, norm: nn.BatchNorm2d) -> bool:
    """Whether the loops support this case: multiples of 16 channels, running statistics, float32 on a CPU."""
    # A subclass computes something else, such as statistics over several processes.
    if type(norm) is not nn.BatchNorm2d or not (norm.affine and norm.track_running_stats) or norm.momentum is None:
        return False
    if not (fused_is_chosen() and runs_compiled(maps) and runs_compiled(norm.weight)):
        return False
    usual = maps.ndim == 4 and maps.shape[1] == norm.num_features and norm.num_features % LANES == 0
    return usual and maps.numel() > maps.shape[1] and not torch.is_autocast_enabled("cpu")


class _BatchNormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        training: bool,
        epsilon: float,
    ) -> Tensor:
        from torchcaps.kernels.batch_norm_loops import normalize_and_rectify

        inverse = (variance + epsilon).rsqrt()
        source = _lanes(maps)
        result = torch.empty(source.shape)
        given = source, _channels(mean), _channels(weight * inverse), _channels(bias), result.numpy()
        on_threads(lambda first, last: normalize_and_rectify(*given, first, last), len(maps))
        ctx.save_for_backward(maps, weight, bias, mean.clone(), variance.clone())  # running statistics change
        ctx.settings = training, epsilon
        return _as_maps(result, maps)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        from torchcaps.kernels.batch_norm_loops import image_gradient_sums, normalized_gradients

        maps, weight, bias, mean, variance = ctx.saved_tensors
        training, epsilon = ctx.settings
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # create_graph=True
            known = (None, None) if training else (mean, variance)
            normal = F.batch_norm(maps, known[0], known[1], weight, bias, training, 0.0, epsilon)
            inputs = [each for each, needed in zip((maps, weight, bias), wanted, strict=True) if needed]
            again = iter(torch.autograd.grad(F.relu(normal), inputs, slopes, create_graph=True))
            return *(next(again) if needed else None for needed in wanted), None, None, None, None
        inverse = (variance + epsilon).rsqrt()
        scale, (batch, channels) = weight * inverse, maps.shape[:2]
        given = _lanes(maps), _lanes(slopes), _channels(mean), _channels(scale), _channels(bias)
        parts = torch.zeros(2, batch, channels // LANES, LANES)
        sums, products = (each.numpy() for each in parts)
        if training or any(wanted[1:]):
            on_threads(lambda first, last: image_gradient_sums(*given, sums, products, first, last), batch)
        dbias, product = parts.flatten(2).sum(1, dtype=torch.float64).float()
        dweight = product * inverse
        share = channels / maps.numel() if training else 0.0  # running statistics do not depend on the maps
        rest = _channels(share * scale * dbias), _channels(share * scale * inverse * dweight)
        result = torch.empty(given[0].shape)
        if wanted[0]:
            on_threads(lambda first, last: normalized_gradients(*given, *rest, result.numpy(), first, last), batch)
        found = _as_maps(result, maps), dweight, dbias
        return *(each if needed else None for each, needed in zip(found, wanted, strict=True)), None, None, None, None


def _lanes(maps: Tensor) -> Any:
    """Maps (B, C, H, W) as an array (B, H*W, C/16, 16): a view if they are channels-last."""
    rows = maps.detach().permute(0, 2, 3, 1).contiguous()
    return rows.view(len(maps), -1, maps.shape[1] // LANES, LANES).numpy()


def _channels(values: Tensor) -> Any:
    return values.detach().contiguous().view(-1, LANES).numpy()


def _as_maps(rows: Tensor, maps: Tensor) -> Tensor:
    batch, channels, height, width = maps.shape
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)
