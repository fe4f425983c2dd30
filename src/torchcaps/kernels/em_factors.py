"""From the gradients of a position's votes to those of poses and W, as loops that numba compiles.

The gradient of a vote is a sum over the iterations of (a number per slot and parent) times (a vector per parent):

    dV = sum_t s_t (dmean_t + 2 (V - mean_t) dvariance_t)  -  sum_t dlog_t (V - mean_t) / variance_t

with s_t the normalised weight of the vote in the M-step and dlog_t the gradient of its log density in the E-step.
Names are those of ``em_votes``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.compiled import inner
from torchcaps.kernels.em_votes import LARGEST_VOTE, TWO, ZERO, widen


@inner
def to_pose_and_weight(poses, c, weights, k, dvotes, s, dposes, dweights):
    """Through V = M W: dM += dV W^T and dW += M^T dV."""
    _, inner, lanes = weights.shape
    rows = poses.shape[1]
    if rows == 4:  # one way through dW for all rows
        for q in range(inner):
            m0, m1, m2, m3 = poses[c, 0, q], poses[c, 1, q], poses[c, 2, q], poses[c, 3, q]
            f0, f1, f2, f3 = ZERO, ZERO, ZERO, ZERO
            for n in range(lanes):
                d0, d1, d2, d3 = dvotes[s, 0, n], dvotes[s, 1, n], dvotes[s, 2, n], dvotes[s, 3, n]
                w = weights[k, q, n]
                f0 += d0 * w
                f1 += d1 * w
                f2 += d2 * w
                f3 += d3 * w
                dweights[k, q, n] += m0 * d0 + m1 * d1 + m2 * d2 + m3 * d3
            dposes[c, 0, q] += f0
            dposes[c, 1, q] += f1
            dposes[c, 2, q] += f2
            dposes[c, 3, q] += f3
        return
    for r in range(rows):
        for q in range(inner):
            found, m = ZERO, poses[c, r, q]
            for n in range(lanes):
                found += dvotes[s, r, n] * weights[k, q, n]
                dweights[k, q, n] += m * dvotes[s, r, n]
            dposes[c, r, q] += found


@inner
def to_factors(
    p, votes, poses, active, weights, child, kind, means, inverses, dmeans, dvariances, norms, shares, slopes, floor,
    dposes, dweights, dvotes, columns, wide,
):  # fmt: skip
    """From the gradients of a position's votes to those of poses and W, four slots at a time.

    ``columns`` and ``wide`` hold the weights of the four slots, then their slopes.
    """
    slots = child.shape[1]
    _, rows, lanes = votes.shape
    types = shares.shape[3]
    iterations = means.shape[0]
    spread = floor / np.float32(slots)
    for i in range(0, slots, 4):
        here = min(4, slots - i)
        dvotes[:] = ZERO
        for t in range(iterations):
            for s in range(here):
                a = active[child[p, i + s]]
                for j in range(types):
                    columns[s, 0, j] = (shares[t, p, i + s, j] * a + spread) * norms[t, p, j]
                widen(columns, s)
                if t < iterations - 1:
                    for j in range(types):
                        columns[4 + s, 0, j] = slopes[t, p, i + s, j]
                    widen(columns, 4 + s)
                else:
                    for n in range(lanes):
                        wide[4 + s, n] = ZERO  # no E-step after the last
            for r in range(rows):
                for n in range(lanes):
                    mean, dmean = means[t, p, r, n], dmeans[t, p, r, n]
                    inverse, twice = inverses[t, p, r, n], TWO * dvariances[t, p, r, n]
                    x0, x1 = votes[i, r, n] - mean, votes[i + 1, r, n] - mean
                    x2, x3 = votes[i + 2, r, n] - mean, votes[i + 3, r, n] - mean
                    dvotes[0, r, n] += wide[0, n] * (dmean + x0 * twice) - wide[4, n] * inverse * x0
                    dvotes[1, r, n] += wide[1, n] * (dmean + x1 * twice) - wide[5, n] * inverse * x1
                    dvotes[2, r, n] += wide[2, n] * (dmean + x2 * twice) - wide[6, n] * inverse * x2
                    dvotes[3, r, n] += wide[3, n] * (dmean + x3 * twice) - wide[7, n] * inverse * x3
        for s in range(here):
            for r in range(rows):
                for n in range(lanes):  # a vote that was cut off does not move
                    dvotes[s, r, n] = dvotes[s, r, n] if abs(votes[i + s, r, n]) < LARGEST_VOTE else ZERO
            to_pose_and_weight(poses, child[p, i + s], weights, kind[i + s], dvotes, s, dposes, dweights)
