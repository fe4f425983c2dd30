"""Fused EM routing on a GPU: the votes are computed from pose and W in registers, forward and backward.

The plain definition is ``routing.em.EMRouting`` on the transform's votes; a test compares the two. Every pass over the
votes is a kernel of ``triton_em_kernels``. What is computed once per parent, a few hundredths of the work, is plain
PyTorch. No sum uses atomics, so the same batch gives bit-identical results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary
from triton import cdiv, next_power_of_2

from torchcaps.kernels import triton_em_kernels as kernels
from torchcaps.kernels.em import Pair, Schedule, plain_em_gradient
from torchcaps.kernels.triton_support import kernels_agree, split_loop
from torchcaps.kernels.vote_factors import VoteFactors

TILE = 1024  # numbers in a tile of votes, if one slot has no more
LARGEST_TILE = 16384
Plain = Callable[[VoteFactors], Pair]
Slopes = tuple[Tensor | None, Tensor | None, Tensor | None]


def triton_em(factors: VoteFactors, beta_u: Tensor, beta_a: Tensor, schedule: Schedule, plain: Plain) -> Pair:
    """Poses (B, P, J, D) and activations (B, P, J) of the parents."""
    assert factors.activation is not None  # checked by fused_em_applies
    inputs = (factors.poses, factors.activation, factors.weight)

    def fused(poses: Tensor, active: Tensor, weight: Tensor) -> Pair:
        arguments = (poses, active, weight, beta_u, beta_a, factors, schedule, plain)
        mean, activation = _TritonEM.apply(*arguments)  # type: ignore[no-untyped-call]
        return mean.transpose(2, 3), activation

    def plainly(poses: Tensor, active: Tensor, weight: Tensor) -> Pair:
        return plain(replace(factors, poses=poses, activation=active, weight=weight))

    with torch.cuda.device_of(factors.poses):
        few = [inputs[0][:2], inputs[1][:2], inputs[2]]
        if factors.poses.is_cuda and not kernels_agree("EM", fused, plainly, few):
            return plain(factors)
        return fused(*inputs)


def em_tile_fits(factors: VoteFactors) -> bool:
    """Whether the votes of one slot, and the gradient of their W, fit into the registers of a program."""
    config = em_factor_config(1, factors.poses.shape[2], *factors.weight.shape[1:])
    votes = config["p_pad"] * config["width_pad"] * config["j_pad"]
    return votes <= 8192 and votes * config["q_pad"] <= LARGEST_TILE


class _TritonEM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        poses: Tensor,
        active: Tensor,
        weight: Tensor,
        beta_u: Tensor,
        beta_a: Tensor,
        factors: VoteFactors,
        schedule: Schedule,
        plain: Plain,
    ) -> Pair:
        problem = _Problem(factors, schedule, poses, active, weight)
        steps = len(schedule.temperatures)
        means, inverses, variances = poses.new_empty(3, steps, *problem.wide)
        bases, masses = poses.new_empty(2, steps, *problem.narrow)
        normalizers = poses.new_empty(steps - 1, *active.shape)
        for t in range(steps):
            previous = (means[t - 1], inverses[t - 1], bases[t - 1], normalizers[t - 1]) if t else None
            masses[t], means[t], variances[t] = problem.m_step(previous)
            inverses[t], bases[t], logits = statistics(masses[t], variances[t], beta_u, beta_a, schedule, t)
            if t < steps - 1:
                normalizers[t] = problem.e_step(means[t], inverses[t], bases[t])
        ctx.save_for_backward(poses, active, weight, beta_u, beta_a)
        ctx.problem, ctx.kept = problem, (means, inverses, variances, bases, masses, normalizers)
        ctx.again = factors, plain
        shape = (len(poses), problem.positions)
        return means[-1].unflatten(0, shape).clone(), logits.sigmoid().unflatten(0, shape)

    @staticmethod
    def backward(ctx: Any, dmean: Tensor, dactive: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            return plain_em_gradient(ctx, dmean.transpose(2, 3), dactive)
        _, active, _, *betas = ctx.saved_tensors
        problem: _Problem = ctx.problem
        means, inverses, variances, bases, masses, normalizers = ctx.kept
        schedule, steps = problem.schedule, len(means)
        dmeans, dvariances, biases = torch.empty_like(means), torch.empty_like(means), torch.empty_like(bases)
        leans = torch.empty_like(normalizers)
        dbetas = [torch.zeros_like(each) for each in betas]
        dchildren = torch.zeros_like(active)
        dmean = dmean.flatten(0, 1)
        slopes: Slopes = (None, None, dactive.flatten(0, 1))
        for t in reversed(range(steps)):
            dmass, dvariance, *more = _statistics_gradient(masses[t], variances[t], betas, schedule, t, slopes)
            dbetas = [total + each for total, each in zip(dbetas, more, strict=True)]
            norm = 1 / (masses[t] + schedule.mass_floor)
            dmeans[t], dvariances[t] = dmean * norm.unsqueeze(1), dvariance * norm.unsqueeze(1)
            biases[t] = dmass - (dvariances[t] * variances[t]).sum(1)
            if t:
                before = (means[t - 1], inverses[t - 1], bases[t - 1], normalizers[t - 1])
                now = (means[t], dmeans[t], dvariances[t], biases[t])
                felt = problem.m_step_backward(before, now)
                dchildren += felt
                leans[t - 1] = felt * active
                dbase, dmean, dinverse = problem.e_step_backward(before, now, leans[t - 1])
                slopes = (dinverse, dbase, None)
        wide, narrow = (means, inverses, dmeans, dvariances), (bases, biases)
        stacked = [torch.stack([each.transpose(0, 1) for each in kind], 2) for kind in (wide, narrow)]
        stacked.append(torch.stack((normalizers, leans), 3).permute(1, 2, 0, 3).contiguous())
        dposes, dweight, felt = problem.factor_gradients(stacked)
        return dposes, dchildren + felt, dweight, *dbetas, None, None, None


def statistics(
    mass: Tensor, variance: Tensor, beta_u: Tensor, beta_a: Tensor, schedule: Schedule, t: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse variances (N, D, J), logarithms of activation over deviation, and logits of the activations (N, J)."""
    variance = variance + schedule.variance_floor
    log_deviation = 0.5 * variance.log().sum(1)
    cost = mass / schedule.expected_mass * (variance.shape[1] * beta_u + log_deviation)
    logit = schedule.temperatures[t] * (beta_a - cost)
    return 1 / variance, F.logsigmoid(logit) - log_deviation, logit


def _statistics_gradient(
    mass: Tensor, variance: Tensor, betas: list[Tensor], schedule: Schedule, t: int, slopes: Slopes
) -> tuple[Tensor, ...]:
    """Gradients of mass, variance and the betas, from those of the inverse variances, the bases and the activations."""
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in (mass, variance, *betas)]
        mass, variance, beta_u, beta_a = leaves
        inverse, base, logit = statistics(mass, variance, beta_u, beta_a, schedule, t)
        pairs = [each for each in zip((inverse, base, logit.sigmoid()), slopes, strict=True) if each[1] is not None]
        outputs, given = zip(*pairs, strict=True)
        return torch.autograd.grad(outputs, leaves, given)


class _Problem:
    """Inputs of the kernels for one batch, their sizes, and a method for each pass over the votes."""

    def __init__(self, factors: VoteFactors, schedule: Schedule, poses: Tensor, active: Tensor, weight: Tensor) -> None:
        self.schedule = schedule
        self.poses, self.active, self.weight = (each.detach().contiguous() for each in (poses, active, weight))
        self.children = poses.shape[1]
        self.positions, self.slots = factors.child_index.shape
        self.index = _Index.of(factors, self.children, poses.device)
        self.offset = factors.offset.to(poses.device).contiguous()
        rows, (_, inner, width, types) = poses.shape[2], weight.shape
        self.count = len(poses) * self.positions  # N
        self.wide, self.narrow = (self.count, rows * width, types), (self.count, types)
        self.sizes: dict[str, Any] = {
            "positions": self.positions,
            "types": types,
            "p": rows,
            "q": inner,
            "width": width,
        }
        self.sizes["has_offset"] = len(factors.offset) > 0
        self.config = em_tile_config(rows, width, types)

    @property
    def votes(self) -> tuple[Tensor, ...]:
        return self.weight, self.offset, self.index.child, self.index.kind

    def over_slots(self) -> tuple[tuple[int, int], tuple[int, int, int, int], int]:
        """Grid, sizes and number of chunks of a pass that loops over slots."""
        tiles = cdiv(self.count, self.config["tile"])
        chunks, span = split_loop(tiles, self.slots)
        return (tiles, chunks), (self.count, self.slots, self.children, span), chunks

    def m_step(self, previous: tuple[Tensor, ...] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Masses (N, J), means and variances (N, D, J) without their floor."""
        grid, numbers, chunks = self.over_slots()
        mass = self.poses.new_empty(chunks, *self.narrow)
        mean, square = self.poses.new_empty(2, chunks, *self.wide)
        old = previous or (mean, mean, mass, mass)  # not read in the first iteration
        kernels.em_m_step[grid](
            self.poses, self.active, *self.votes, self.index.first, *old, mass, mean, square, *numbers,
            self.schedule.mass_floor / self.slots, is_first=previous is None, **self.sizes, **self.config,
        )  # fmt: skip
        whole = mass.sum(0)
        norm = 1 / (whole + self.schedule.mass_floor).unsqueeze(1)
        if chunks == 1:
            return whole, mean[0], square[0] * norm
        span = numbers[-1]
        lengths = (self.slots - span * torch.arange(chunks, device=mass.device)).clamp_max(span)
        floors = lengths * (self.schedule.mass_floor / self.slots)
        part = (mass + floors[:, None, None]).unsqueeze(2) * norm
        common = (part * mean).sum(0)
        return whole, common, (square * norm + part * (mean - common).square()).sum(0)

    def e_step(self, *statistics: Tensor) -> Tensor:
        """Logarithm of each child's sum of densities over all its parents (B, C)."""
        grid, numbers, _ = self.over_slots()
        sums = self.poses.new_empty(self.count, self.slots)
        kernels.em_e_step[grid](self.poses, *self.votes, *statistics, sums, *numbers, **self.sizes, **self.config)
        return self.index.by_child(sums, -torch.inf).logsumexp(2)

    def m_step_backward(self, before: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> Tensor:
        """Gradient of the children's activations from one M-step (B, C)."""
        grid, numbers, _ = self.over_slots()
        felt = self.poses.new_empty(self.count, self.slots)
        kernels.em_m_step_backward[grid](
            self.poses, *self.votes, *before, *now, felt, *numbers, **self.sizes, **self.config
        )
        return self.index.by_child(felt, 0.0).sum(2)

    def e_step_backward(
        self, before: tuple[Tensor, ...], now: tuple[Tensor, ...], lean: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the bases, means and inverse variances that an E-step used."""
        grid, numbers, chunks = self.over_slots()
        dbase = self.poses.new_empty(chunks, *self.narrow)
        dmean, dinverse = self.poses.new_empty(2, chunks, *self.wide)
        kernels.em_e_step_backward[grid](
            self.poses, self.active, *self.votes, *before, *now, lean, dbase, dmean, dinverse, *numbers,
            **self.sizes, **self.config,
        )  # fmt: skip
        return dbase.sum(0), dmean.sum(0), dinverse.sum(0)

    def factor_gradients(self, stacked: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the poses, of W, and of the children's activations from the first M-step."""
        config = em_factor_config(
            self.slots, self.sizes["p"], self.sizes["q"], self.sizes["width"], self.sizes["types"]
        )
        tiles = self.slots // config["tile"]
        chunks, span = split_loop(tiles, self.count)
        dposes = self.poses.new_empty(self.count, self.slots, *self.poses.shape[2:])
        dweights = self.poses.new_zeros(chunks, self.slots, *self.weight.shape[1:])
        felt = self.poses.new_empty(self.count, self.slots)
        kernels.em_factor_gradients[tiles, chunks](
            self.poses, self.active, *self.votes, self.index.first, *stacked, dposes, dweights, felt,
            stacked[0].shape[1], self.count, self.slots, self.children, span, self.schedule.mass_floor / self.slots,
            **self.sizes, **config,
        )  # fmt: skip
        dweight = self.index.by_weight(dweights.sum(0))
        return self.index.by_child(dposes, 0.0).sum(2), dweight, self.index.by_child(felt, 0.0).sum(2)


def em_tile_config(rows: int, width: int, types: int) -> dict[str, int]:
    """Sizes of a tile of (rows, D, J), and the number of warps."""
    pads = {"p_pad": next_power_of_2(rows), "width_pad": next_power_of_2(width), "j_pad": next_power_of_2(types)}
    votes = pads["p_pad"] * pads["width_pad"] * pads["j_pad"]
    return pads | {"tile": max(1, TILE // votes), "num_warps": max(4, votes // 512)}


def em_factor_config(slots: int, rows: int, inner: int, width: int, types: int) -> dict[str, int]:
    """Sizes of a tile of (slots, D, J) in the last pass, which sums up a gradient of W for each, and its warps."""
    config = em_tile_config(rows, width, types) | {"q_pad": next_power_of_2(inner)}
    each = config["p_pad"] * config["width_pad"] * config["j_pad"] * config["q_pad"]
    tile = math.gcd(slots, max(1, 4 * TILE // each))
    return config | {"tile": tile, "num_warps": 8 if each <= 8192 else 16}


class _Index:
    """The child and the W of each slot, and the slots of each child and each W, on the device."""

    _known: Any = WeakTensorKeyDictionary()  # by the tensor of child indices, which a convolutional transform keeps

    def __init__(self, factors: VoteFactors, children: int, device: torch.device) -> None:
        child, kind = factors.child_index.cpu(), factors.weight_index.cpu()
        types = factors.weight.shape[3]
        seen = torch.bincount(child.flatten(), minlength=children)
        self.first = (1 / (seen * types).clamp_min(1)).float().to(device)
        self.child, self.kind = child.int().contiguous().to(device), kind.int().contiguous().to(device)
        self.slots_of_child = occurrences(child.flatten(), children).to(device)
        self.slots_of_weight = occurrences(kind, len(factors.weight)).to(device)

    @classmethod
    def of(cls, factors: VoteFactors, children: int, device: torch.device) -> _Index:
        found: _Index | None = cls._known.get(factors.child_index)
        if found is None or found.first.device != device:
            found = cls._known[factors.child_index] = cls(factors, children, device)
        return found

    def by_child(self, values: Tensor, missing: float) -> Tensor:
        """Values of all slots of each child: (N, I, ...) to (B, C, most slots, ...), filled up with ``missing``."""
        values = values.unflatten(0, (-1, len(self.child))).flatten(1, 2)  # (B, P*I, ...)
        filler = values.new_full((len(values), 1, *values.shape[2:]), missing)
        return torch.cat((values, filler), 1)[:, self.slots_of_child]

    def by_weight(self, values: Tensor) -> Tensor:
        """Sum of the values of all slots of each W: (I, ...) to (weights, ...)."""
        return torch.cat((values, torch.zeros_like(values[:1])))[self.slots_of_weight].sum(1)


def occurrences(owners: Tensor, count: int) -> Tensor:
    """Indices of each owner's items, (count, most items), filled up with the number of items.

    >>> occurrences(torch.tensor([1, 0, 1]), 3)
    tensor([[1, 3],
            [0, 2],
            [3, 3]])
    """
    order = owners.argsort(stable=True)
    numbers = torch.bincount(owners, minlength=count)
    first = numbers.cumsum(0) - numbers
    found = torch.full((count, max(1, int(numbers.max()))), len(owners))
    found[owners[order], torch.arange(len(owners)) - first[owners[order]]] = order
    return found
