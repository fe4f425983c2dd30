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
from torch.nn import functional as F

from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled, runs_on_triton
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.progress import progress_bar

LANES = 16  # cells that the loops compute at a time, as in ``simd``, which imports numba
GROUP_BYTES = 2**24  # of the assignments of a group of images, and their gradients
Array = Any  # numpy arrays of float32 and int32
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Schedule:
    """Constants of the procedure: lambda of each iteration, unit of mass, floors of mass and variance, mean damping.

    The backward pass goes through the last ``gradient_steps`` M-steps; None: through all.
    """

    temperatures: tuple[float, ...]
    expected_mass: float
    mass_floor: float
    variance_floor: float
    mean_damping: float = 0.0
    gradient_steps: int | None = None


def fused_em_applies(factors: VoteFactors, betas: Pair | None, schedule: Schedule) -> bool:
    """Whether a fused kernel supports these tensors: float32 on a CPU, or on a GPU with Triton, in eager mode.

    Triton's kernel computes neither mixing proportions (``betas`` is None) nor mean damping, and its gradient goes
    through all iterations.
    """
    if factors.activation is None:
        return False
    tensors = (factors.poses, factors.activation, factors.weight)
    if runs_on_triton(*tensors):
        from torchcaps.kernels.triton_em import em_tile_fits

        whole = schedule.gradient_steps in (None, len(schedule.temperatures))
        return betas is not None and not schedule.mean_damping and whole and em_tile_fits(factors)
    return fused_is_chosen() and all(map(runs_compiled, tensors))


def fused_em(
    factors: VoteFactors, betas: Pair | None, schedule: Schedule, plain: Callable[[VoteFactors], Pair]
) -> Pair:
    """Poses (B, P, J, D) and activations (B, P, J) of the parents.

    ``betas`` are beta_u and beta_a, or None if activations are mixing proportions. ``plain`` is the plain definition,
    used for second derivatives.
    """
    if betas is not None and runs_on_triton(factors.poses):
        from torchcaps.kernels.triton_em import triton_em

        return triton_em(factors, *betas, schedule, plain)
    _compile_once()
    beta_u, beta_a = betas or (torch.empty(0), torch.empty(0))
    arguments = (factors.poses, factors.activation, factors.weight, beta_u, beta_a)
    routed: Pair = _FusedEM.apply(*arguments, factors, schedule, plain)  # type: ignore[no-untyped-call]
    return routed


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

        def some_images(first: int, last: int) -> list[tuple[Any, ...]]:
            kept = []
            for images in problem.groups(first, last):
                blocks = problem.blocks(images)
                shape = (problem.steps, len(blocks[0]), problem.types)
                wide = lanes(2, *shape, problem.size)  # means and inverse variances
                narrow = lanes(4, *shape)  # masses, costs, scores, bases
                sums = np.empty((problem.steps - 1, problem.owners(images)), np.float32)
                shares = problem.assignments(1, shape[1])
                buffers = shares[0] if len(shares) else shares.reshape(0, 0, 0, LANES), *problem.buffers(1)
                em_forward(*blocks, *problem.constants, *wide, *narrow, sums, *buffers)
                kept.append((images, wide, narrow, sums))
            return kept

        kept = [group for groups in on_threads(some_images, len(problem.poses)) for group in groups]
        mean = problem.from_lanes([(images, wide[0, -1]) for images, wide, _, _ in kept], problem.types, problem.size)
        score = problem.from_lanes([(images, narrow[2, -1]) for images, _, narrow, _ in kept], problem.types)
        ctx.save_for_backward(poses, active, weight, beta_u, beta_a)
        ctx.problem, ctx.kept, ctx.score = problem, kept, score
        ctx.again = factors, plain
        mean = mean.unflatten(3, (problem.rows, -1))[..., : problem.width].flatten(3)
        return mean, activation_of(score, problem.mixing, schedule.mass_floor)

    @staticmethod
    def backward(ctx: Any, dmean: Tensor, dactive: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            return plain_em_gradient(ctx, dmean, dactive)
        from torchcaps.kernels.em_gradient import em_backward, scatter_children

        problem: _Problem = ctx.problem
        with torch.enable_grad():
            score = ctx.score.requires_grad_()
            activation = activation_of(score, problem.mixing, problem.schedule.mass_floor)
            (dscore,) = torch.autograd.grad(activation, score, dactive)
        dmean = fill_up(dmean.unflatten(3, (problem.rows, problem.width))).flatten(3)
        dposes, dchildren = np.zeros_like(problem.poses), np.zeros_like(problem.active)
        dchildren = dchildren.reshape(*dchildren.shape, 1)

        def some_groups(first: int, last: int) -> tuple[Array, ...]:
            types = (len(problem.constants[3]), LANES)
            totals = np.zeros_like(problem.weight), np.zeros(types, np.float32), np.zeros(types, np.float32)
            for images, wide, narrow, sums in ctx.kept[first:last]:
                blocks = problem.blocks(images)
                dpair = lanes(*wide.shape[:-1])
                dpair[:] = 0
                dpair[0, -1] = problem.to_lanes(dmean[images])
                slopes = lanes(*blocks[0].shape[:-1]), lanes(*blocks[1].shape[:-1])
                slopes[0][:], slopes[1][:] = 0, 0
                shares = problem.assignments(2, wide.shape[2])
                buffers = shares[: len(shares) // 2], shares[len(shares) // 2 :], *problem.buffers(2)
                em_backward(
                    *blocks, *problem.constants, problem.start, *wide, *narrow, sums, *dpair,
                    problem.to_lanes(dscore[images]), *slopes, *totals, *buffers,
                )  # fmt: skip
                scatter_children(slopes[0], problem.child, dposes[images])
                scatter_children(slopes[1][:, :, None], problem.child, dchildren[images])
            return totals

        parts = on_threads(some_groups, len(ctx.kept))
        tiles, du, da = (torch.from_numpy(sum(part[n] for part in parts)) for n in range(3))
        gradients = (
            problem.pose_gradient(dposes),
            torch.from_numpy(dchildren).squeeze(2),
            problem.weight_gradient(tiles),
        )
        return *gradients, du.sum(1), da.sum(1), None, None, None


def activation_of(score: Tensor, mixing: bool, mass_floor: float) -> Tensor:
    """Activations (B, P, J) from logits, or from masses if they are mixing proportions."""
    if not mixing:
        return score.sigmoid()
    mass = score.clamp_min(mass_floor)
    return mass / mass.sum((1, 2), keepdim=True)


def fill_up(values: Tensor) -> Tensor:
    """Fill up the last dimension with zeros to a multiple of 4."""
    return F.pad(values, (0, -values.shape[-1] % 4))


def lanes(*shape: int) -> Array:
    """Allocate an array with 16 lanes last, at an address that vector loads need: numpy aligns to 16 bytes only."""
    return torch.empty(*shape, LANES).numpy()


class _Problem:
    """Inputs of the compiled loops for one batch, as numpy arrays.

    The loops compute 16 cells (positions of images) at a time, of a group of images: positions compete for children.
    """

    def __init__(self, factors: VoteFactors, schedule: Schedule, *tensors: Tensor) -> None:
        poses, active, weight, beta_u, beta_a = (each.detach() for each in tensors)
        self.schedule = schedule
        self.rows, self.inner, self.width, self.types = *poses.shape[2:], *weight.shape[2:]
        self.poses = fill_up(poses).flatten(2).contiguous().numpy()  # (B, C, p*Q)
        self.active = active.contiguous().numpy()
        self.weight = self.to_tiles(weight)
        self.child = factors.child_index.to(torch.int32).numpy()
        (self.positions, self.slots), self.steps = self.child.shape, len(schedule.temperatures)
        self.size = self.rows * 4 * self.weight.shape[2]  # D, filled up
        self.mixing = not len(beta_u)
        self.start = self.steps - schedule.gradient_steps if schedule.gradient_steps else 0
        parents = np.bincount(self.child.ravel(), minlength=self.poses.shape[1]) * self.types
        self.prior = (1 / np.maximum(parents, 1)).astype(np.float32)
        offset = factors.offset.detach().unflatten(1, (self.rows, self.width))
        numbers = schedule.expected_mass, schedule.mass_floor, schedule.variance_floor, schedule.mean_damping
        self.constants = (
            self.weight, fill_up(offset).flatten(1).contiguous().numpy(), factors.weight_index.to(torch.int32).numpy(),
            beta_u.numpy(), beta_a.numpy(), np.asarray(schedule.temperatures, np.float32),
            *(np.float32(number) for number in numbers), self.width,
        )  # fmt: skip

    def groups(self, first: int, last: int) -> list[slice]:
        """Split images into groups of up to 16, whose assignments fit in a cache."""
        bytes_per_image = 8 * max(self.steps - 1, 1) * self.positions * self.slots * self.types
        most = max(1, min(LANES, GROUP_BYTES // bytes_per_image))
        return [slice(start, min(start + most, last)) for start in range(first, last, most)]

    def owners(self, images: slice) -> int:
        """Number of children in a group, and one for the lanes that are no cell."""
        return int((images.stop - images.start) * self.poses.shape[1] + 1)

    def blocks(self, images: slice) -> tuple[Array, ...]:
        """Poses, activations, first assignments and numbers of the children in each slot of a group's cells."""
        from torchcaps.kernels.em_loops import gather_children

        shape = (-(-(images.stop - images.start) * self.positions // LANES), self.slots)
        poses, active, prior = lanes(*shape, self.poses.shape[2]), lanes(*shape), lanes(*shape)
        owner = np.empty((*shape, LANES), np.int32)
        gather_children(
            self.poses[images], self.active[images], self.prior, self.child, poses, active, prior, owner
        )  # fmt: skip
        return poses, active, prior, owner

    def assignments(self, copies: int, blocks: int) -> Array:
        """Allocate assignments of every E-step. A single iteration has none."""
        return lanes(copies * (self.steps - 1), blocks, self.slots, self.types)

    def buffers(self, copies: int) -> tuple[Array, ...]:
        """Allocate buffers: votes of a block for one parent, copies of the same size, and two numbers of each slot."""
        return *lanes(copies, self.slots, self.size), *lanes(2, self.slots)

    def to_lanes(self, values: Tensor) -> Array:
        """Move cells to the lanes: (G, P, ...) to (N, ..., 16)."""
        cells = values.flatten(0, 1)
        filled = F.pad(cells.flatten(1), (0, 0, 0, -len(cells) % LANES)).unflatten(0, (-1, LANES))
        return filled.transpose(1, 2).unflatten(1, cells.shape[1:]).contiguous().numpy()

    def from_lanes(self, groups: list[tuple[slice, Array]], *shape: int) -> Tensor:
        """Move the lanes of all groups to cells: (N, ..., 16) to (B, P, ...)."""
        result = torch.empty(len(self.poses), self.positions, *shape)
        for images, values in groups:
            cells = torch.from_numpy(values).flatten(1, -2).transpose(1, 2).flatten(0, 1)
            result[images] = cells[: (images.stop - images.start) * self.positions].view_as(result[images])
        return result

    def to_tiles(self, weight: Tensor) -> Array:
        """Tiles of W: (kinds, q, q', J) to (kinds, J, S / 4, Q / 4, 16)."""
        filled = F.pad(weight, (0, 0, 0, -self.width % 4, 0, -self.inner % 4))
        tiles = filled.unflatten(2, (-1, 4)).unflatten(1, (-1, 4))  # (kinds, Q / 4, 4, S / 4, 4, J)
        return tiles.permute(0, 5, 3, 1, 2, 4).flatten(4).contiguous().numpy()

    def weight_gradient(self, tiles: Tensor) -> Tensor:
        """Gradient of the weights (kinds, q, q', J) from that of ``em_backward``: in tiles, or vectors of 16 by row."""
        if self.size == LANES == 4 * tiles.shape[2]:
            by_row: Tensor = tiles.reshape(len(tiles), self.types, -1, LANES).permute(0, 2, 3, 1)
            return by_row.narrow(1, 0, self.inner).narrow(2, 0, self.width)
        filled: Tensor = tiles.unflatten(4, (4, 4)).permute(0, 3, 4, 2, 5, 1).flatten(3, 4).flatten(1, 2)
        return filled.narrow(1, 0, self.inner).narrow(2, 0, self.width)

    def pose_gradient(self, dposes: Array) -> Tensor:
        filled: Tensor = torch.from_numpy(dposes).unflatten(2, (self.rows, -1))
        return filled.narrow(3, 0, self.inner)


def plain_em_gradient(ctx: Any, dpose: Tensor, dactive: Tensor) -> tuple[Tensor | None, ...]:
    factors, plain = ctx.again
    poses, active, weight, beta_u, beta_a = ctx.saved_tensors
    again = VoteFactors(poses, active, weight, factors.child_index, factors.weight_index, factors.offset)
    routed = plain(again)
    inputs = [each for each in (poses, active, weight, beta_u, beta_a) if each.requires_grad]
    found = iter(torch.autograd.grad(routed, inputs, (dpose, dactive), create_graph=True, allow_unused=True))
    every = [next(found) if each.requires_grad else None for each in (poses, active, weight, beta_u, beta_a)]
    return (*every, None, None, None)


@cache
def _compile_once() -> None:
    """Compile the kernels, or load them from the cache, before threads call them."""
    with (
        progress_bar("compiling fused EM routing (once, then cached)", None),
        torch.inference_mode(False),  # the first call may be under either
        torch.enable_grad(),
    ):
        one = torch.zeros(1, dtype=torch.long)
        poses, weight = torch.zeros(1, 1, 1, 1, requires_grad=True), torch.zeros(1, 1, 1, 1)
        factors = VoteFactors(poses, torch.ones(1, 1), weight, one.unsqueeze(0), one, torch.zeros(1, 1))
        arguments = (poses, factors.activation, weight, torch.zeros(1), torch.zeros(1), factors)
        schedule = Schedule((1.0, 1.0), 1.0, 1.0, 1.0)
        mean, _ = _FusedEM.apply(*arguments, schedule, None)  # type: ignore[no-untyped-call]
        mean.sum().backward()
