r"""Nonlinearities of capsule poses, and a registry of their records.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 3.2:

.. math:: u_n = \tanh(A_n s_n + a_n)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.functional import exponential_squash, squash
from torchcaps.kernels.affine_tanh import fused_affine_tanh, fused_affine_tanh_applies
from torchcaps.registry import Registry
from torchcaps.routing.base import Nonlinearity

SMALL_SQUARE = 1e-6  # added to a mean square, so that poses of zero stay zero


@dataclass(frozen=True)
class NonlinearityRecord:
    """A nonlinearity by name.

    Args:
        name: as in ``create_model("capsnet", nonlinearity=name)``.
        description: one line.
        paper: key of the paper, or ``yours``.
        function: applied to the poses (..., D) of a capsule layer.
        primary: applied to the primary capsules; None for the same function.
        bounded: whether lengths stay below 1, so that a length is a probability.
    """

    name: str
    description: str
    paper: str
    function: Nonlinearity
    primary: Nonlinearity | None = None
    bounded: bool = True


nonlinearities: Registry[NonlinearityRecord] = Registry("nonlinearity")
"""All nonlinearities by name."""


def get_nonlinearity(nonlinearity: str | Nonlinearity) -> Nonlinearity:
    """Return the function of a registered name; a function is returned as it is."""
    return nonlinearities.get(nonlinearity).function if isinstance(nonlinearity, str) else nonlinearity


def identity(pose: Tensor) -> Tensor:
    """Return the pose unchanged."""
    return pose


def rms_normalize(pose: Tensor) -> Tensor:
    """Divide the poses of an image by the root mean square over all capsules of the layer.

    Relative sizes within an image are kept, and nothing depends on the other images of the batch.

    Shapes: (B, P, J, D) to the same.

    >>> rms_normalize(torch.full((1, 2, 3, 4), 5.0)).unique()
    tensor([1.])
    """
    return pose * (pose.square().mean((1, 2, 3), keepdim=True) + SMALL_SQUARE).rsqrt()


def rectified_exponential_squash(pose: Tensor) -> Tensor:
    """ReLU, then the exponential squash, as in the configuration that chen2019 released."""
    return exponential_squash(F.relu(pose))


def rectified_squash(pose: Tensor) -> Tensor:
    """ReLU, then squash: the counterpart of :func:`rectified_exponential_squash` with sabour2017's function."""
    return squash(F.relu(pose))


def exponential_squash_rectified(pose: Tensor) -> Tensor:
    """The exponential squash, then ReLU, as in the multi-layer network that chen2019 released."""
    return F.relu(exponential_squash(pose))


def affine_tanh(pose: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """tanh(pose @ weight + bias) for each capsule type. Shapes: (..., types, D), (types, D, D) and (types, D)."""
    types, size = bias.shape
    rows = pose.reshape(-1, types, size).transpose(0, 1)  # (types, rows, D)
    return torch.baddbmm(bias.unsqueeze(1), rows, weight).transpose(0, 1).reshape(pose.shape).tanh()


class AffineTanh(nn.Module):
    """An affine map for each capsule type, then tanh (choi2019).

    It has parameters, and it does not keep a capsule's direction.

    Shapes: (..., types, size) to the same.

    >>> sum(parameter.numel() for parameter in AffineTanh(8, 16).parameters())
    2176
    """

    def __init__(self, types: int, size: int) -> None:
        super().__init__()
        bound = (3 / size) ** 0.5
        self.weight = nn.Parameter(nn.init.uniform_(torch.empty(types, size, size), -bound, bound))
        self.bias = nn.Parameter(torch.zeros(types, size))

    def forward(self, pose: Tensor) -> Tensor:
        # A routing computes in float32 and may call this while the parameters are in half precision.
        weight, bias = self.weight.to(pose.dtype), self.bias.to(pose.dtype)
        if fused_affine_tanh_applies(pose, weight):
            return fused_affine_tanh(pose, weight, bias, affine_tanh)
        return affine_tanh(pose, weight, bias)

    def extra_repr(self) -> str:
        return f"types={self.bias.shape[0]}, size={self.bias.shape[1]}"


class TypeBatchNorm(nn.Module):
    """Batch normalization of all pose elements of a capsule type together, without learned scale and offset.

    Ribeiro, Leontidis, Kollias: Capsule Routing via Variational Bayes, 2020, https://arxiv.org/abs/1905.11455.

    Shapes: (B, P, types, size) to the same.
    """

    def __init__(self, types: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(types, affine=False)

    def forward(self, pose: Tensor) -> Tensor:
        batch, positions, types, size = pose.shape
        together = pose.transpose(1, 2).reshape(batch, types, positions * size)
        # A routing computes in float32 and may call this while the running statistics are in half precision.
        normalized: Tensor = self.norm(together.to(self.norm.running_mean)).to(pose.dtype)
        return normalized.view(batch, types, positions, size).transpose(1, 2)


nonlinearities.add(NonlinearityRecord("squash", "length |s|^2 / (1 + |s|^2)", "sabour2017", squash))
nonlinearities.add(
    NonlinearityRecord(
        name="exponential",
        description="length 1 - exp(-|s|), after ReLU in capsule layers",
        paper="chen2019",
        function=rectified_exponential_squash,
        primary=exponential_squash,
    )
)
nonlinearities.add(
    NonlinearityRecord(
        name="relu-exponential",
        description="length 1 - exp(-|s|), after ReLU in primary capsules too",
        paper="chen2019",
        function=rectified_exponential_squash,
    )
)
nonlinearities.add(
    NonlinearityRecord(
        name="exponential-relu",
        description="length 1 - exp(-|s|), then ReLU; in primary capsules ReLU comes first",
        paper="chen2019",
        function=exponential_squash_rectified,
        primary=rectified_exponential_squash,
    )
)
nonlinearities.add(
    NonlinearityRecord("relu-squash", "length |s|^2 / (1 + |s|^2), after ReLU", "chen2019", rectified_squash)
)
nonlinearities.add(NonlinearityRecord("none", "no nonlinearity", "gu2021", identity, bounded=False))
