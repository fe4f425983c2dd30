"""Backward pass of fused EM routing, as loops compiled by numba.

The gradient of a vote is a sum over the iterations of (a number per slot and parent) times (a vector per parent):

    dV = sum_t s_t (dmean_t + 2 (V - mean_t) dvariance_t)  -  sum_t dlog_t (V - mean_t) / variance_t

with s_t the normalized weight of the vote in the M-step and dlog_t the gradient of its log density in the E-step.
Names are those of ``em_loops``. ``shares`` and ``slopes`` (T - 1, N, I, J) are the assignments after each E-step, and
their gradients, later those of the log densities. ``dpair`` has the shape of ``means``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.em_factors import pose_and_weight_gradients, vector_gradients
from torchcaps.kernels.em_loops import LARGEST_VOTE, four_votes, gather_lanes, locate_cells, scatter_lanes
from torchcaps.kernels.numba_support import HALF, ONE, TWO, ZERO, compiled, inner
from torchcaps.kernels.simd import (
    LANES,
    exponential,
    magnitude,
    splat,
    vload,
    vload4,
    vstore,
    vstore4,
    where_below,
    zeros,
)


@compiled
def scatter_children(block_gradients, child, gradients):
    """Add the gradients of the slots (N, I, Q) to those of the children (G, C, Q)."""
    images, _, size = gradients.shape
    positions, slots = child.shape
    image, position = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    for n in range(block_gradients.shape[0]):
        locate_cells(n, positions, image, position)
        for i in range(slots):
            for lane in range(min(LANES, images * positions - n * LANES)):
                g, c = image[lane], child[position[lane], i]
                for d in range(size):
                    gradients[g, c, d] += block_gradients[n, i, d, lane]


@inner
def compute_votes(votes, n, j, poses, weights, kind, offsets):
    row_tiles = weights.shape[2]
    for i in range(votes.shape[0]):
        for d in range(0, votes.shape[1], 4):
            row, b = d // (4 * row_tiles), (d // 4) % row_tiles
            vstore4(votes, (i, d), four_votes(poses, n, i, row, weights, kind[i], j, b, offsets))


@inner
def e_step_backward(t, n, j, votes, means, inverses, shares, slopes, lean, dmeans, dvariances):
    """Backward through the E-step after M-step t. Return the gradient of the log density's base.

    ``slopes`` become those of the log densities.
    """
    dbase = zeros()
    for i in range(votes.shape[0]):
        slope = vload(shares, (t, n, i, j)) * (vload(slopes, (t, n, i, j)) - vload(lean, (i,)))
        vstore(slopes, (t, n, i, j), slope)
        dbase += slope
    for d in range(0, votes.shape[1], 4):
        m0, m1, m2, m3 = vload4(means, (t, n, j, d))
        a0, a1, a2, a3 = zeros(), zeros(), zeros(), zeros()
        b0, b1, b2, b3 = zeros(), zeros(), zeros(), zeros()
        for i in range(votes.shape[0]):
            slope = vload(slopes, (t, n, i, j))
            v0, v1, v2, v3 = vload4(votes, (i, d))
            x0, x1, x2, x3 = v0 - m0, v1 - m1, v2 - m2, v3 - m3
            y0, y1, y2, y3 = slope * x0, slope * x1, slope * x2, slope * x3
            a0, a1, a2, a3 = a0 + y0, a1 + y1, a2 + y2, a3 + y3
            b0, b1, b2, b3 = b0 + y0 * x0, b1 + y1 * x1, b2 + y2 * x2, b3 + y3 * x3
        i0, i1, i2, i3 = vload4(inverses, (t, n, j, d))
        g0, g1, g2, g3 = vload4(dmeans, (t, n, j, d))
        vstore4(dmeans, (t, n, j, d), (g0 + i0 * a0, g1 + i1 * a1, g2 + i2 * a2, g3 + i3 * a3))
        b0, b1, b2, b3 = HALF * b0, HALF * b1, HALF * b2, HALF * b3
        vstore4(dvariances, (t, n, j, d), (i0 * i0 * b0, i1 * i1 * b1, i2 * i2 * b2, i3 * i3 * b3))
    return dbase


@inner
def activation_backward(
    t, n, j, dscore, dbase, masses, costs, scores, beta_u, temperatures, expected, floor, size, dbeta_u, dbeta_a
):
    """Gradients of mass and log deviation from those of the score and of the log density's base."""
    mass = vload(masses, (t, n, j))
    if beta_u.shape[0] == 0:  # mixing: the score is the mass
        return dscore + where_below(splat(floor), mass, dbase / max(mass, floor)), -ONE * dbase
    # The logarithm of the logistic has slope 1 - activation. 88 is the largest argument of the exponential.
    dlogit = dscore + dbase / (ONE + exponential(min(vload(scores, (t, n, j)), np.float32(88))))
    dcost = -temperatures[t] * dlogit
    vstore(dbeta_a, (j,), vload(dbeta_a, (j,)) - dcost)
    vstore(dbeta_u, (j,), vload(dbeta_u, (j,)) + dcost * mass * (size / expected))
    return dcost * vload(costs, (t, n, j)), dcost * mass * (ONE / expected) - dbase


@inner
def statistics_backward(t, n, j, dspread, damping, epsilon, means, inverses, dmeans, dvariances):
    """Gradients of mean before damping and variance, in place. Return the balance: their scalar product with the two.

    A weight that grows by a small number times itself, with the others reduced in proportion, changes the loss by its
    own scalar product minus the balance.
    """
    balance = zeros()
    for d in range(means.shape[3]):
        mean, inverse, dmean = vload(means, (t, n, j, d)), vload(inverses, (t, n, j, d)), vload(dmeans, (t, n, j, d))
        dvariance = vload(dvariances, (t, n, j, d)) + HALF * dspread * inverse
        if damping > ZERO and t > 0:
            gap = (mean - vload(means, (t - 1, n, j, d))) * (damping / (ONE - damping))  # mean before damping - mean
            dmean -= TWO * dvariance * gap
            vstore(dmeans, (t - 1, n, j, d), damping * dmean)
            mean, dmean = mean + gap, (ONE - damping) * dmean
            vstore(dmeans, (t, n, j, d), dmean)
        vstore(dvariances, (t, n, j, d), dvariance)
        balance += dmean * mean + dvariance * (ONE / inverse - epsilon)
    return balance


@inner
def weigh_votes(t, n, j, votes, means, inverses, dmeans, dvariances, near, pull):
    """Squared distance from the parent of step t - 1, and gradient of the weight in M-step t, of each slot's vote."""
    for i in range(votes.shape[0]):
        vstore(near, (i,), zeros())
        vstore(pull, (i,), zeros())
    before = max(t - 1, 0)
    for d in range(0, votes.shape[1], 4):
        m0, m1, m2, m3 = vload4(means, (t, n, j, d))
        g0, g1, g2, g3 = vload4(dmeans, (t, n, j, d))
        s0, s1, s2, s3 = vload4(dvariances, (t, n, j, d))
        o0, o1, o2, o3 = vload4(means, (before, n, j, d))
        i0, i1, i2, i3 = vload4(inverses, (before, n, j, d))
        for i in range(votes.shape[0]):
            v0, v1, v2, v3 = vload4(votes, (i, d))
            x0, x1, x2, x3 = v0 - m0, v1 - m1, v2 - m2, v3 - m3
            found = (g0 * v0 + x0 * x0 * s0) + (g1 * v1 + x1 * x1 * s1)
            vstore(pull, (i,), vload(pull, (i,)) + found + (g2 * v2 + x2 * x2 * s2) + (g3 * v3 + x3 * x3 * s3))
            if t > 0:
                x0, x1, x2, x3 = v0 - o0, v1 - o1, v2 - o2, v3 - o3
                found = (x0 * x0 * i0 + x1 * x1 * i1) + (x2 * x2 * i2 + x3 * x3 * i3)
                vstore(near, (i,), vload(near, (i,)) + found)


@inner
def m_step_backward(t, n, j, active, prior, norms, base, balance, dmass, near, pull, logs, shares, slopes, felt):
    """Backward through M-step t, to the sum of the assignments' gradients and, in ``slopes``, to the assignments."""
    norm = vload(norms, (t, j))
    for i in range(near.shape[0]):
        share = vload(prior, (n, i))
        if t > 0:
            share = exponential(base - HALF * vload(near, (i,)) - vload(logs, (i,)))
            vstore(shares, (t - 1, n, i, j), share)
        dshare = (vload(pull, (i,)) - balance) * norm + dmass
        vstore(felt, (i,), vload(felt, (i,)) + dshare * share)
        if t > 0:
            vstore(slopes, (t - 1, n, i, j), dshare * vload(active, (n, i)))


@inner
def vote_gradients(
    n,
    j,
    start,
    votes,
    active,
    prior,
    shares,
    slopes,
    norms,
    spread,
    means,
    inverses,
    dmeans,
    dvariances,
    weight,
    dvotes,
):
    """Gradients of a block's votes for one parent, as a sum over the iterations from ``start``."""
    last = means.shape[0] - 1
    for t in range(start, last + 1):
        norm = vload(norms, (t, j))
        for i in range(votes.shape[0]):
            share = vload(prior, (n, i)) if t == 0 else vload(shares, (t - 1, n, i, j))
            vstore(weight, (i,), (share * vload(active, (n, i)) + spread) * norm)
        for d in range(0, votes.shape[1], 4):
            m0, m1, m2, m3 = vload4(means, (t, n, j, d))
            g0, g1, g2, g3 = vload4(dmeans, (t, n, j, d))
            s0, s1, s2, s3 = vload4(dvariances, (t, n, j, d))
            s0, s1, s2, s3 = TWO * s0, TWO * s1, TWO * s2, TWO * s3
            i0, i1, i2, i3 = vload4(inverses, (t, n, j, d))
            for i in range(votes.shape[0]):
                w = vload(weight, (i,))
                slope = vload(slopes, (t, n, i, j)) if t < last else zeros()
                v0, v1, v2, v3 = vload4(votes, (i, d))
                y0 = w * g0 + (w * s0 - slope * i0) * (v0 - m0)
                y1 = w * g1 + (w * s1 - slope * i1) * (v1 - m1)
                y2 = w * g2 + (w * s2 - slope * i2) * (v2 - m2)
                y3 = w * g3 + (w * s3 - slope * i3) * (v3 - m3)
                if t > start:
                    z0, z1, z2, z3 = vload4(dvotes, (i, d))
                    y0, y1, y2, y3 = y0 + z0, y1 + z1, y2 + z2, y3 + z3
                if t == last:
                    y0, y1, y2, y3 = unclamped(v0, y0), unclamped(v1, y1), unclamped(v2, y2), unclamped(v3, y3)
                vstore4(dvotes, (i, d), (y0, y1, y2, y3))


@inner
def unclamped(vote, slope):
    """A clamped vote has no gradient."""
    return where_below(magnitude(vote), splat(LARGEST_VOTE), slope)


@compiled
def em_backward(
    poses, active, prior, owner, weights, offsets, kind, beta_u, beta_a, temperatures, expected, floor, epsilon,
    damping, width, start, means, inverses, masses, costs, scores, bases, sums, dmeans, dvariances, dscores,
    dposes, dactive, dweights, dbeta_u, dbeta_a, shares, slopes, votes, dvotes, weight, near,
):  # fmt: skip
    """Iterations of the blocks, backward from the last to ``start``, whose assignments are constants.

    On entry ``dmeans[-1]`` and ``dscores`` (N, J) hold the gradients of the result, and the rest of ``dmeans``, and
    ``dvariances``, are zero. The following arguments that begin with ``d`` are accumulated into; ``dweights`` has tiles
    like the weights, but for vectors of 16 numbers it is (kinds, J, Q, 16).
    """
    blocks, slots = active.shape[:2]
    types = weights.shape[1]
    iterations = means.shape[0]
    size = np.float32(votes.shape[1] // (4 * weights.shape[2]) * width)
    spread = floor / np.float32(slots)
    vectors = votes.shape[1] == LANES == 4 * weights.shape[2]
    by_column = dweights.reshape((weights.shape[0], types, -1, LANES))
    row = np.empty(LANES, np.float32)
    lean, felt, pull, logs = (
        np.empty((slots, LANES), np.float32), np.empty((slots, LANES), np.float32),
        np.empty((slots, LANES), np.float32), np.empty((slots, LANES), np.float32),
    )  # fmt: skip
    norms = np.empty((iterations, types, LANES), np.float32)
    leaning, leaning_next = np.zeros(sums.shape[1], np.float32), np.zeros(sums.shape[1], np.float32)
    for t in range(iterations - 1, start - 1, -1):
        leaning[:] = leaning_next
        leaning_next[:] = ZERO
        for n in range(blocks):
            for i in range(slots):
                vstore(felt, (i,), zeros())
                if t < iterations - 1:
                    vstore(lean, (i,), gather_lanes(row, leaning, owner, n, i))
                if t > 0:
                    vstore(logs, (i,), gather_lanes(row, sums[t - 1], owner, n, i))
            for j in range(types):
                compute_votes(votes, n, j, poses, weights, kind, offsets)
                if t < iterations - 1:
                    dscore = zeros()
                    dbase = e_step_backward(t, n, j, votes, means, inverses, shares, slopes, lean, dmeans, dvariances)
                else:
                    dscore, dbase = vload(dscores, (n, j)), zeros()
                dmass, dspread = activation_backward(
                    t, n, j, dscore, dbase, masses, costs, scores, beta_u, temperatures, expected, floor, size,
                    dbeta_u, dbeta_a,
                )  # fmt: skip
                balance = statistics_backward(t, n, j, dspread, damping, epsilon, means, inverses, dmeans, dvariances)
                for u in range(iterations):
                    vstore(norms, (u, j), ONE / (vload(masses, (u, n, j)) + floor))
                weigh_votes(t, n, j, votes, means, inverses, dmeans, dvariances, near, pull)
                base = vload(bases, (max(t - 1, 0), n, j))
                m_step_backward(
                    t, n, j, active, prior, norms, base, balance, dmass, near, pull, logs, shares, slopes, felt
                )
                if t == start:
                    vote_gradients(
                        n, j, start, votes, active, prior, shares, slopes, norms, spread, means, inverses, dmeans,
                        dvariances, weight, dvotes,
                    )  # fmt: skip
                    if vectors:
                        vector_gradients(n, j, poses, weights, kind, dvotes, dposes, by_column)
                    else:
                        pose_and_weight_gradients(n, j, poses, weights, kind, dvotes, dposes, dweights)
            for i in range(slots):
                total = vload(felt, (i,))
                vstore(dactive, (n, i), vload(dactive, (n, i)) + total)
                vstore(felt, (i,), total * vload(active, (n, i)))
            scatter_lanes(leaning_next, owner, n, felt)
