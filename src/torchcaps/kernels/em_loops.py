"""Forward pass of fused EM routing, and loops that it shares with the backward pass, compiled by numba.

A cell is a parent position of an image, and a block is 16 cells, one in each lane of a vector (``simd``). All loops
compute a block at a time; a lane never depends on another, except through a child that several positions see. The votes
of a block for one parent type are computed in cache, used, and discarded.

Names: N blocks, C children, I slots of a position, J parent types, T iterations. A pose has rows of Q elements, a
parent's pose D elements in rows of S; Q and S are multiples of 4, filled up with zeros. All arrays have the 16 lanes
last, which shapes omit:

- ``poses`` (N, I, rows * Q), ``active`` (N, I) and ``prior`` (N, I), the assignment before routing, of the child in
  each slot; ``owner`` (N, I) is the number of that child in ``peak`` and ``sums``.
- ``weights`` (kinds, J, S / 4, Q / 4): tiles of 4 x 4 numbers, not lanes. ``kind`` (I), without lanes, is the W of each
  slot. ``offsets`` (I, D), without lanes, are added to the votes; (0, D) if there are none.
- ``means`` and ``inverses`` of variances (T, N, J, D); ``masses``, ``scores`` and ``bases`` (T, N, J).
- ``shares`` (N, I, J): log densities, then assignments. Buffers: ``votes`` (I, D), ``weight`` (I), ``near`` (I).
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import HALF, ONE, ZERO, compiled, inner
from torchcaps.kernels.simd import (
    LANES,
    exponential,
    logarithm,
    magnitude,
    splat,
    vload,
    vload4,
    vstore,
    vstore4,
    zeros,
)

LARGEST_VOTE = np.float32(1e6)


@inner
def locate_cells(n, positions, image, position):
    """Image and position of each cell of a block."""
    for lane in range(LANES):
        cell = n * LANES + lane
        image[lane], position[lane] = cell // positions, cell % positions


@compiled
def gather_children(poses, active, prior, child, block_poses, block_active, block_prior, owner):
    """Copy the children of all images (G, C, Q) to the slots of the blocks. Cells beyond the last are zero."""
    images, children, size = poses.shape
    image, position = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    for n in range(owner.shape[0]):
        locate_cells(n, child.shape[0], image, position)
        for i in range(child.shape[1]):
            for lane in range(LANES):
                g = image[lane]
                if g < images:
                    c = child[position[lane], i]
                    for d in range(size):
                        block_poses[n, i, d, lane] = poses[g, c, d]
                    block_active[n, i, lane], block_prior[n, i, lane] = active[g, c], prior[c]
                    owner[n, i, lane] = g * children + c
                else:
                    for d in range(size):
                        block_poses[n, i, d, lane] = ZERO
                    block_active[n, i, lane], block_prior[n, i, lane] = ZERO, ONE
                    owner[n, i, lane] = images * children


@inner
def four_votes(poses, n, i, row, weights, k, j, b, offsets):
    """Elements 4 b to 4 b + 3 of a row of V = M W + offset."""
    v0, v1, v2, v3 = zeros(), zeros(), zeros(), zeros()
    tiles = weights.shape[3]
    for a in range(tiles):
        d = 4 * (row * tiles + a)
        x0, x1, x2, x3 = vload4(poses, (n, i, d))
        v0 += x0 * weights[k, j, b, a, 0]
        v1 += x0 * weights[k, j, b, a, 1]
        v2 += x0 * weights[k, j, b, a, 2]
        v3 += x0 * weights[k, j, b, a, 3]
        v0 += x1 * weights[k, j, b, a, 4]
        v1 += x1 * weights[k, j, b, a, 5]
        v2 += x1 * weights[k, j, b, a, 6]
        v3 += x1 * weights[k, j, b, a, 7]
        v0 += x2 * weights[k, j, b, a, 8]
        v1 += x2 * weights[k, j, b, a, 9]
        v2 += x2 * weights[k, j, b, a, 10]
        v3 += x2 * weights[k, j, b, a, 11]
        v0 += x3 * weights[k, j, b, a, 12]
        v1 += x3 * weights[k, j, b, a, 13]
        v2 += x3 * weights[k, j, b, a, 14]
        v3 += x3 * weights[k, j, b, a, 15]
    if offsets.shape[0]:
        d = 4 * (row * weights.shape[2] + b)
        v0, v1, v2, v3 = v0 + offsets[i, d], v1 + offsets[i, d + 1], v2 + offsets[i, d + 2], v3 + offsets[i, d + 3]
    return clamp(v0), clamp(v1), clamp(v2), clamp(v3)


@inner
def clamp(vote):
    return min(max(vote, -LARGEST_VOTE), LARGEST_VOTE)


@inner
def squared_distances(near, votes, means, inverses, t, n, j):
    """Squared distance of each slot's vote from a parent of step t, in units of its variances."""
    for i in range(near.shape[0]):
        vstore(near, (i,), zeros())
    for d in range(0, votes.shape[1], 4):
        m0, m1, m2, m3 = vload4(means, (t, n, j, d))
        s0, s1, s2, s3 = vload4(inverses, (t, n, j, d))
        for i in range(near.shape[0]):
            v0, v1, v2, v3 = vload4(votes, (i, d))
            x0, x1, x2, x3 = v0 - m0, v1 - m1, v2 - m2, v3 - m3
            found = (x0 * x0 * s0 + x1 * x1 * s1) + (x2 * x2 * s2 + x3 * x3 * s3)
            vstore(near, (i,), vload(near, (i,)) + found)


@inner
def normalize_weights(weight, floor):
    """Turn assignment times activation of each slot into weights that sum to one. Return the mass."""
    slots = weight.shape[0]
    mass = zeros()
    for i in range(slots):
        mass += vload(weight, (i,))
    norm = ONE / (mass + floor)
    spread = floor / np.float32(slots)
    for i in range(slots):
        vstore(weight, (i,), (vload(weight, (i,)) + spread) * norm)
    return mass


@inner
def m_step(t, n, j, poses, weights, kind, offsets, weight, votes, damping, epsilon, width, means, inverses):
    """Compute the votes, their weighted mean and inverse variance. Return the log of the deviation, summed over D."""
    slots = weight.shape[0]
    row_tiles = weights.shape[2]
    deviation = zeros()
    for d in range(0, votes.shape[1], 4):
        row, b = d // (4 * row_tiles), (d // 4) % row_tiles
        m0, m1, m2, m3 = zeros(), zeros(), zeros(), zeros()
        for i in range(slots):
            v0, v1, v2, v3 = four_votes(poses, n, i, row, weights, kind[i], j, b, offsets)
            vstore4(votes, (i, d), (v0, v1, v2, v3))
            w = vload(weight, (i,))
            m0, m1, m2, m3 = m0 + w * v0, m1 + w * v1, m2 + w * v2, m3 + w * v3
        if damping > ZERO and t > 0:
            o0, o1, o2, o3 = vload4(means, (t - 1, n, j, d))
            m0, m1, m2, m3 = (
                m0 + damping * (o0 - m0), m1 + damping * (o1 - m1), m2 + damping * (o2 - m2), m3 + damping * (o3 - m3)
            )  # fmt: skip
        vstore4(means, (t, n, j, d), (m0, m1, m2, m3))
        s0, s1, s2, s3 = splat(epsilon), splat(epsilon), splat(epsilon), splat(epsilon)
        for i in range(slots):
            v0, v1, v2, v3 = vload4(votes, (i, d))
            w, x0, x1, x2, x3 = vload(weight, (i,)), v0 - m0, v1 - m1, v2 - m2, v3 - m3
            s0, s1, s2, s3 = s0 + w * x0 * x0, s1 + w * x1 * x1, s2 + w * x2 * x2, s3 + w * x3 * x3
        vstore4(inverses, (t, n, j, d), (ONE / s0, ONE / s1, ONE / s2, ONE / s3))
    for d in range(votes.shape[1]):
        if d % (4 * row_tiles) < width:  # not a number that fills up a row
            deviation -= HALF * logarithm(vload(inverses, (t, n, j, d)))
    return deviation


@inner
def e_step_base(t, n, j, mass, deviation, beta_u, beta_a, temperatures, expected, floor, size, masses, costs, scores):
    """Store mass, cost and score of a parent; return the log of its activation over its deviation, for the E-step.

    The score is the logit of the activation. Without betas (``mixing``) it is the mass: the activation is then the
    mass over that of all parents, a common factor, which cancels in the E-step.
    """
    vstore(masses, (t, n, j), mass)
    if beta_u.shape[0] == 0:
        vstore(scores, (t, n, j), mass)
        return logarithm(max(mass, floor)) - deviation
    cost = (deviation + size * beta_u[j]) * (ONE / expected)
    logit = temperatures[t] * (beta_a[j] - mass * cost)
    vstore(costs, (t, n, j), cost)
    vstore(scores, (t, n, j), logit)
    return min(logit, ZERO) - logarithm(ONE + exponential(-ONE * magnitude(logit))) - deviation


@inner
def gather_lanes(row, values, owner, n, i):
    """The values of the children in a slot."""
    for lane in range(LANES):
        row[lane] = values[owner[n, i, lane]]
    return vload(row, ())


@inner
def scatter_lanes(totals, owner, n, values):
    """Add the values (I) of a block to those of the children, cell by cell: an order that no block changes."""
    for lane in range(LANES):
        for i in range(values.shape[0]):
            totals[owner[n, i, lane]] += values[i, lane]


@inner
def exponentiate(t, shares, owner, sums, peak, total, row, found_in_slot):
    """Turn log densities into exponentials, whose sum over all parents of a child is in ``total`` (C).

    The largest of a child has the value 1. ``sums`` (T - 1, C) receives the log of the sum of the densities.
    """
    blocks, slots, types = shares.shape[:3]
    peak[:] = -np.float32(3e38)
    for n in range(blocks):
        for i in range(slots):
            highest = vload(shares, (n, i, 0))
            for j in range(1, types):
                highest = max(highest, vload(shares, (n, i, j)))
            vstore(row, (), highest)
            for lane in range(LANES):
                c = owner[n, i, lane]
                peak[c] = max(peak[c], row[lane])
    total[:] = ZERO
    for n in range(blocks):
        for i in range(slots):
            highest = gather_lanes(row, peak, owner, n, i)
            found = zeros()
            for j in range(types):
                value = exponential(vload(shares, (n, i, j)) - highest)
                vstore(shares, (n, i, j), value)
                found += value
            vstore(found_in_slot, (i,), found)
        scatter_lanes(total, owner, n, found_in_slot)
    for c in range(total.shape[0]):
        sums[t, c] = peak[c] + np.log(total[c])


@compiled
def em_forward(
    poses, active, prior, owner, weights, offsets, kind, beta_u, beta_a, temperatures, expected, floor, epsilon,
    damping, width, means, inverses, masses, costs, scores, bases, sums, shares, votes, weight, near,
):  # fmt: skip
    """All iterations of the blocks. Arguments from ``means`` on are outputs and buffers; ``width`` is S unpadded."""
    blocks, slots = active.shape[:2]
    types = weights.shape[1]
    last = means.shape[0] - 1
    size = np.float32(votes.shape[1] // (4 * weights.shape[2]) * width)
    row, scaled = np.empty(LANES, np.float32), np.empty((slots, LANES), np.float32)
    peak, total = np.empty(sums.shape[1], np.float32), np.empty(sums.shape[1], np.float32)
    for t in range(last + 1):
        for n in range(blocks):
            for i in range(slots):
                factor = vload(prior, (n, i)) if t == 0 else ONE / gather_lanes(row, total, owner, n, i)
                vstore(scaled, (i,), vload(active, (n, i)) * factor)
            for j in range(types):
                for i in range(slots):
                    w = vload(scaled, (i,))
                    vstore(weight, (i,), w if t == 0 else w * vload(shares, (n, i, j)))
                mass = normalize_weights(weight, floor)
                deviation = m_step(
                    t, n, j, poses, weights, kind, offsets, weight, votes, damping, epsilon, width, means, inverses
                )
                base = e_step_base(
                    t, n, j, mass, deviation, beta_u, beta_a, temperatures, expected, floor, size, masses, costs, scores
                )
                vstore(bases, (t, n, j), base)
                if t < last:
                    squared_distances(near, votes, means, inverses, t, n, j)
                    for i in range(slots):
                        vstore(shares, (n, i, j), base - HALF * vload(near, (i,)))
        if t < last:
            exponentiate(t, shares, owner, sums, peak, total, row, near)
