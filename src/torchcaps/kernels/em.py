"""Fused EM routing: votes are computed from pose and W in cache, forward and backward, and never stored.

The plain definition is ``routing.em.EMRouting`` on the transform's votes; a test compares the two. Threads split the
images of a batch; for a given number of threads the result is bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.functional import VoteFactors
from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled, runs_on_triton
from torchcaps.progress import progress_bar

Array = Any  # numpy arrays of float32 and int32
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Schedule:
    """Constants of the procedure: lambda of each iteration, the unit of mass, and the floors of mass and variance.

    The backward pass goes through the last ``gradient_steps`` M-steps; None: through all.
    """

    temperatures: tuple[float, ...]
    expected_mass: float
    mass_floor: float
    variance_floor: float
    gradient_steps: int | None = None


def fused_em_applies(factors: VoteFactors) -> bool:
    """Whether a fused kernel supports these tensors: float32 on a CPU, or on a GPU with Triton, in eager mode."""
    if factors.activation is None:
        return False
    tensors = (factors.poses, factors.activation, factors.weight)
    if runs_on_triton(*tensors):
        from torchcaps.kernels.triton_em import em_tile_fits

        return em_tile_fits(factors)
    return fused_is_chosen() and all(map(runs_compiled, tensors))


def fused_em(
    factors: VoteFactors, beta_u: Tensor, beta_a: Tensor, schedule: Schedule, plain: Callable[[VoteFactors], Pair]
) -> Pair:
    """Poses (B, P, J, D) and activations (B, P, J) of the parents.

    ``plain`` is the plain definition, used for second derivatives.
    """
    if runs_on_triton(factors.poses):
        from torchcaps.kernels.triton_em import triton_em

        return triton_em(factors, beta_u, beta_a, schedule, plain)
    _compile_once()
    arguments = (factors.poses, factors.activation, factors.weight, beta_u, beta_a)
    mean, active = _FusedEM.apply(*arguments, factors, schedule, plain)  # type: ignore[no-untyped-call]
    return mean.transpose(2, 3), active


class _FusedEM(torch.autograd.Function):
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
        plain: Callable[[VoteFactors], Pair],
    ) -> Pair:
        from torchcaps.kernels.em_loops import em_forward

        problem = _Problem(factors, schedule, poses, active, weight, beta_u, beta_a)
        shape = (problem.steps, problem.positions, problem.types)
        batch = len(problem.poses)
        rows = (batch, *shape[:2], problem.rows, problem.lanes)
        wide = np.empty((2, *rows), np.float32)  # means and inverse variances
        narrow = np.empty((4, batch, *shape), np.float32)  # masses, costs, logits, bases
        sums = np.empty((batch, problem.steps - 1, problem.poses.shape[1]), np.float32)

        def some_images(first: int, last: int) -> None:
            shares, scratch = problem.shares(1), problem.scratch()
            for b in range(first, last):
                em_forward(*problem.image(b), *wide[:, b], *narrow[:, b], sums[b], *shares, *scratch)

        on_threads(some_images, batch)
        activation = torch.from_numpy(narrow[2, :, -1]).sigmoid()
        ctx.save_for_backward(poses, active, weight, beta_u, beta_a)
        # Not the output itself: it would reference this node, and neither would ever be freed.
        ctx.problem, ctx.kept = problem, (wide, narrow, sums)
        ctx.again = factors, plain
        mean = torch.from_numpy(wide[0, :, -1]).reshape(batch, problem.positions, problem.size, problem.types)
        return mean, activation

    @staticmethod
    def backward(ctx: Any, dmean: Tensor, dactive: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            return plain_em_gradient(ctx, dmean, dactive)
        from torchcaps.kernels.em_gradient import em_backward

        problem: _Problem = ctx.problem
        wide, narrow, sums = ctx.kept
        active = torch.from_numpy(narrow[2, :, -1]).sigmoid()
        last_mean = dmean.contiguous().numpy().reshape(wide[0, :, -1].shape)
        last_logit = (dactive * active * (1 - active)).contiguous().numpy()
        dposes, dchildren = np.zeros_like(problem.poses), np.zeros_like(problem.active)
        per_slot = (problem.positions, problem.slots, problem.types)

        def some_images(first: int, last: int) -> tuple[Array, Array, Array]:
            totals = np.zeros_like(problem.weight), np.zeros_like(problem.beta_u), np.zeros_like(problem.beta_a)
            shares = problem.shares(problem.steps)
            slopes = np.empty((max(problem.steps - 1, 1), *per_slot), np.float32)
            scratch = problem.scratch()
            for b in range(first, last):
                dmeans, dvariances = np.zeros((2, *wide.shape[2:]), np.float32)
                dmeans[-1] = last_mean[b]
                em_backward(
                    *problem.image(b), problem.start, *wide[:, b], *narrow[:, b], sums[b], dmeans, dvariances,
                    last_logit[b].copy(), dposes[b], dchildren[b], *totals, *shares, slopes, *scratch,
                )  # fmt: skip
            return totals

        parts = on_threads(some_images, len(problem.poses))
        dweight, du, da = (torch.from_numpy(sum(part[n] for part in parts)) for n in range(3))
        dweight = dweight.view_as(ctx.saved_tensors[2])
        return torch.from_numpy(dposes), torch.from_numpy(dchildren), dweight, du, da, None, None, None


class _Problem:
    """Inputs of the compiled loops for one batch, as numpy arrays."""

    def __init__(self, factors: VoteFactors, schedule: Schedule, *tensors: Tensor) -> None:
        arrays = [each.detach().contiguous().numpy() for each in tensors]
        self.poses, self.active, self.weight, self.beta_u, self.beta_a = arrays
        self.weight = self.weight.reshape(*self.weight.shape[:2], -1)  # (N, q, L)
        self.child = factors.child_index.to(torch.int32).numpy()
        self.kind = factors.weight_index.to(torch.int32).numpy()
        self.offset = factors.offset.contiguous().numpy()
        (self.positions, self.slots), self.steps = self.child.shape, len(schedule.temperatures)
        self.start = max(self.steps - (schedule.gradient_steps or self.steps), 0)
        self.fours = -(-self.slots // 4)
        self.rows, self.lanes, self.types = self.poses.shape[2], self.weight.shape[2], len(self.beta_u)
        self.size = self.rows * self.lanes // self.types
        parents = np.bincount(self.child.ravel(), minlength=self.poses.shape[1]) * self.types
        self.first = (1 / np.maximum(parents, 1)).astype(np.float32)
        self.temperatures = np.asarray(schedule.temperatures, np.float32)
        numbers = (schedule.expected_mass, schedule.mass_floor, schedule.variance_floor)
        self.numbers = tuple(np.float32(number) for number in numbers)

    def image(self, b: int) -> tuple[Any, ...]:
        """Inputs of the compiled loops for one image."""
        return (
            self.poses[b], self.active[b], self.weight, self.offset, self.child, self.kind, self.first,
            self.beta_u, self.beta_a, self.temperatures, *self.numbers,
        )  # fmt: skip

    def shares(self, steps: int) -> tuple[Array, Array]:
        """Allocate assignments, with slots rounded up to a multiple of 4, as views by slot and by group of 4."""
        room = np.zeros((steps, self.positions, self.fours * 4, self.types), np.float32)
        return room, room.reshape(steps, self.positions, self.fours, 4 * self.types)

    def scratch(self) -> tuple[Array, ...]:
        """Allocate buffers: votes of a position, four vote gradients, eight rows of lanes in two views, exponents."""
        votes = np.zeros((self.fours * 4, self.rows, self.lanes), np.float32)
        dvotes = np.zeros((4, self.rows, self.lanes), np.float32)
        columns = np.zeros((8, self.lanes // self.types, self.types), np.float32)
        powers = np.empty(4 * self.types, np.int32)
        return votes, dvotes, columns, columns.reshape(8, self.lanes), powers, powers.view(np.float32)


def plain_em_gradient(ctx: Any, dmean: Tensor, dactive: Tensor) -> tuple[Tensor | None, ...]:
    factors, plain = ctx.again
    poses, active, weight, beta_u, beta_a = ctx.saved_tensors
    again = VoteFactors(poses, active, weight, factors.child_index, factors.weight_index, factors.offset)
    mean, activation = plain(again)
    inputs = [each for each in (poses, active, weight, beta_u, beta_a) if each.requires_grad]
    outputs, slopes = (mean.transpose(2, 3), activation), (dmean, dactive)
    found = iter(torch.autograd.grad(outputs, inputs, slopes, create_graph=True, allow_unused=True))
    every = [next(found) if each.requires_grad else None for each in (poses, active, weight, beta_u, beta_a)]
    return (*every, None, None, None)


@cache
def _compile_once() -> None:
    """Compile the kernels, or load them from the cache, before threads call them."""
    with progress_bar("compiling fused EM routing (once, then cached)", None):
        one = torch.zeros(1, dtype=torch.long)
        poses, weight = torch.zeros(1, 1, 1, 1, requires_grad=True), torch.zeros(1, 1, 1, 1)
        factors = VoteFactors(poses, torch.ones(1, 1), weight, one.unsqueeze(0), one, torch.zeros(1, 1))
        arguments = (poses, factors.activation, weight, torch.zeros(1), torch.zeros(1), factors)
        schedule = Schedule((1.0, 1.0), 1.0, 1.0, 1.0)
        with torch.enable_grad():  # the first call may be under no_grad
            mean, _ = _FusedEM.apply(*arguments, schedule, None)  # type: ignore[no-untyped-call]
            mean.sum().backward()
