"""Fused affine map and tanh of capsule poses on a CPU: one pass over the poses in each direction.

With batched matrix products the poses are copied type by type before and after. The plain definition is
``layers.nonlinearity.affine_tanh``; a test compares the two.

Letters: R rows, D pose size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled

LANES = 16
Plain = Callable[[Tensor, Tensor, Tensor], Tensor]


def fused_affine_tanh_applies(pose: Tensor, weight: Tensor) -> bool:
    """Whether the fused form supports this case: multiples of 16 pose elements, on a CPU in float32."""
    fits = weight.shape[2] % LANES == 0 and runs_compiled(pose) and runs_compiled(weight)
    return fits and fused_is_chosen() and not torch.is_autocast_enabled("cpu")


def fused_affine_tanh(pose: Tensor, weight: Tensor, bias: Tensor, plain: Plain) -> Tensor:
    """tanh(pose @ weight + bias) for each type: pose (..., types, D), weight (types, D, D), bias (types, D).

    ``plain`` is the plain definition, used for second derivatives.
    """
    result: Tensor = _FusedAffineTanh.apply(pose, weight, bias, plain)  # type: ignore[no-untyped-call]
    return result


class _FusedAffineTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pose: Tensor, weight: Tensor, bias: Tensor, plain: Plain) -> Tensor:
        from torchcaps.kernels.affine_tanh_loops import ROWS, map_rows

        rows, result = _lanes(pose, bias), torch.empty(pose.shape)
        given = rows, _array(weight), _lanes(bias, bias)[0], _lanes(result, bias)

        def some_blocks(first: int, last: int) -> None:
            map_rows(*given, *_buffers(ROWS, rows), first, last)

        on_threads(some_blocks, -(-len(rows) // ROWS))
        ctx.save_for_backward(pose, weight, bias, result)
        ctx.plain = plain
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        from torchcaps.kernels.affine_tanh_loops import ROWS, map_gradients

        pose, weight, bias, result = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            inputs = [each for each in (pose, weight, bias) if each.requires_grad]
            found = iter(torch.autograd.grad(ctx.plain(pose, weight, bias), inputs, slopes, create_graph=True))
            return *(next(found) if each.requires_grad else None for each in (pose, weight, bias)), None
        rows, drows = _lanes(pose, bias), torch.empty(pose.shape)
        given = rows, _array(weight.transpose(1, 2)), _lanes(result, bias), _lanes(slopes, bias), _lanes(drows, bias)

        def some_blocks(first: int, last: int) -> tuple[Tensor, Tensor]:
            dweight, dbias = torch.zeros(weight.shape), torch.zeros(bias.shape)
            sums = dweight.numpy(), _lanes(dbias, bias)[0]
            map_gradients(*given, *sums, *_buffers(ROWS, rows), first, last)
            return dweight, dbias

        sums = on_threads(some_blocks, -(-len(rows) // ROWS))
        dweight, dbias = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
        return drows, dweight, dbias, None


def _array(values: Tensor) -> Any:
    return values.detach().contiguous().numpy()


def _lanes(values: Tensor, bias: Tensor) -> Any:
    """Poses (..., types, D) as an array (R, types, D/16, 16)."""
    return values.detach().contiguous().view(-1, len(bias), bias.shape[1] // LANES, LANES).numpy()


def _buffers(length: int, rows: Any) -> list[Any]:
    return [np.zeros((length, *rows.shape[2:]), np.float32) for _ in range(2)]
