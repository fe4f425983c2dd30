"""Loops of products of votes, compiled by numba.

Arrays: votes (R, I, J, D/16, 16), couplings (R, I, J), poses (R, J, D/16, 16), where R is batch times positions.
"""

from __future__ import annotations

from torchcaps.kernels.numba_support import TWO, compiled
from torchcaps.kernels.simd import lane_sum, vload, vstore, zeros


@compiled
def sum_over_children(couplings, votes, poses, first, last):
    """poses[j] = sum over i of couplings[i, j] * votes[i, j]."""
    for r in range(first, last):
        for j in range(votes.shape[2]):
            for q in range(votes.shape[3]):
                total = zeros()
                for i in range(votes.shape[1]):
                    total += couplings[r, i, j] * vload(votes, (r, i, j, q))
                vstore(poses, (r, j, q), total)


@compiled
def multiply_with_poses(votes, poses, products, first, last):
    """products[i, j] = scalar product of votes[i, j] and poses[j]."""
    for r in range(first, last):
        for i in range(votes.shape[1]):
            for j in range(votes.shape[2]):
                total = zeros()
                for q in range(votes.shape[3]):
                    total += vload(votes, (r, i, j, q)) * vload(poses, (r, j, q))
                products[r, i, j] = lane_sum(total)


@compiled
def multiply_with_couplings(couplings, poses, votes, first, last):
    """votes[i, j] = couplings[i, j] * poses[j]."""
    for r in range(first, last):
        for i in range(votes.shape[1]):
            for j in range(votes.shape[2]):
                for q in range(votes.shape[3]):
                    vstore(votes, (r, i, j, q), couplings[r, i, j] * vload(poses, (r, j, q)))


@compiled
def sum_squared_differences(couplings, votes, poses, result, first, last):
    """result[j] = sum over i of couplings[i, j] * (votes[i, j] - poses[j]) squared."""
    for r in range(first, last):
        for j in range(votes.shape[2]):
            for q in range(votes.shape[3]):
                pose, total = vload(poses, (r, j, q)), zeros()
                for i in range(votes.shape[1]):
                    difference = vload(votes, (r, i, j, q)) - pose
                    total += couplings[r, i, j] * (difference * difference)
                vstore(result, (r, j, q), total)


@compiled
def weigh_squared_differences(votes, poses, precision, result, first, last):
    """result[i, j] = scalar product of precision[j] and (votes[i, j] - poses[j]) squared."""
    for r in range(first, last):
        for i in range(votes.shape[1]):
            for j in range(votes.shape[2]):
                total = zeros()
                for q in range(votes.shape[3]):
                    difference = vload(votes, (r, i, j, q)) - vload(poses, (r, j, q))
                    total += vload(precision, (r, j, q)) * (difference * difference)
                result[r, i, j] = lane_sum(total)


@compiled
def difference_gradients(couplings, votes, poses, factors, dvotes, dposes, first, last):
    """dvotes = 2 * couplings * factors * (votes - poses), and dposes minus its sum over the children."""
    for r in range(first, last):
        for j in range(votes.shape[2]):
            for q in range(votes.shape[3]):
                pose, factor, total = vload(poses, (r, j, q)), TWO * vload(factors, (r, j, q)), zeros()
                for i in range(votes.shape[1]):
                    gradient = couplings[r, i, j] * factor * (vload(votes, (r, i, j, q)) - pose)
                    vstore(dvotes, (r, i, j, q), gradient)
                    total -= gradient
                vstore(dposes, (r, j, q), total)
