"""How shipped weights lie on disk: in half precision, the largest matrices in 8 bits with a scale for each row."""

from __future__ import annotations

from torch import Tensor

LARGE = 500_000  # numbers: below that 8 bits would save little
STEPS = 127  # to each side of zero
SCALE = ".scale"


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """From a model's state to what is stored; whole numbers stay as they are."""
    packed = {}
    for name, value in weights.items():
        if not value.is_floating_point():
            packed[name] = value.contiguous()
        elif value.ndim < 2 or value.numel() < LARGE:
            packed[name] = value.half().contiguous()
        else:
            rows = value.float().flatten(1)
            scale = rows.abs().amax(1, keepdim=True).clamp_min(1e-12) / STEPS
            packed[name] = (rows / scale).round().char().view(value.shape)
            packed[name + SCALE] = scale.squeeze(1).contiguous()
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """From what is stored to a model's state in float32."""
    weights = {}
    for name, value in packed.items():
        scale = packed.get(name + SCALE)
        if scale is not None:
            weights[name] = value.float() * scale.view(-1, *[1] * (value.ndim - 1))
        elif name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in packed:
            weights[name] = value.float() if value.is_floating_point() else value
    return weights
