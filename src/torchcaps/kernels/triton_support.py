"""What all Triton kernels share: how loops are split into programs, and a check at their first use on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from triton import cdiv

PROGRAMS = 512  # a few for each multiprocessor of a large GPU
TOLERANCE = 0.01  # kernels that are wrong differ by much more, and PyTorch's products may be in TF32
Form = Callable[..., Sequence[Tensor]]

_verdicts: dict[tuple[object, ...], bool] = {}


def split_loop(tiles: int, steps: int) -> tuple[int, int]:
    """Number and length of the chunks into which each tile's loop is split, so that all programs fill a GPU.

    The result does not depend on the device, and so neither does the order of any sum.

    >>> split_loop(8, 1152), split_loop(576, 288)
    ((64, 18), (1, 288))
    """
    wanted = max(1, min(PROGRAMS // max(tiles, 1), cdiv(steps, 8)))
    span = max(1, cdiv(steps, wanted))
    return max(1, cdiv(steps, span)), span


def kernels_agree(name: str, fused: Form, plain: Form, like: Sequence[Tensor]) -> bool:
    """Whether kernels run on a device and agree with their plain definition, gradients included.

    Both run on random inputs of the shapes of ``like``, once for each device and set of shapes. If the kernels fail,
    which depends on driver, compiler and GPU, a warning says why, and the caller uses the plain definition.
    """
    device = like[0].device
    key = (name, device, *(each.shape for each in like))
    if key not in _verdicts:
        source = torch.Generator(device).manual_seed(0)  # the global one must not advance
        inputs = [torch.rand(each.shape, generator=source, device=device, requires_grad=True) for each in like]
        try:
            with torch.enable_grad(), torch.autocast(device.type, enabled=False):
                found, expected = _values_and_gradients(fused, inputs), _values_and_gradients(plain, inputs)
            pairs = zip(found, expected, strict=True)
            worst = max(((a - b).abs().max() / b.abs().max().clamp_min(1e-20)).item() for a, b in pairs)
            problem = "" if worst < TOLERANCE else f"they differ from the plain definition by {worst:.2g}"
        except Exception as error:  # whatever it is, there is another way to compute the result
            problem = f"{type(error).__name__}: {error}"
        if problem:
            message = f"the Triton kernels of {name} routing are not used on {device}, plain PyTorch is: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        _verdicts[key] = not problem
    return _verdicts[key]


def _values_and_gradients(form: Form, inputs: Sequence[Tensor]) -> list[Tensor]:
    values = form(*inputs)
    return [*values, *torch.autograd.grad([each.square().sum() for each in values], inputs)]
