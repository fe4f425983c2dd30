"""Loops of fused attention routing, compiled by numba: rows of votes (I*J*D), shares (J, I), poses (J*D)."""

from __future__ import annotations

from torchcaps.kernels.numba_support import ZERO, compiled


@compiled
def weighted_sums(votes, shares, poses, first, last, size):
    """Sum the votes of each parent, weighted by its shares."""
    parents, children = shares.shape[1], shares.shape[2]
    for step in range(last - first):
        r = first + step
        row, share, pose = votes[r], shares[r], poses[r]
        for j in range(parents):
            own = pose[j * size : (j + 1) * size]
            own[:] = ZERO
            for i in range(children):
                weight, vote = share[j, i], row[(i * parents + j) * size : (i * parents + j + 1) * size]
                for d in range(size):
                    own[d] += weight * vote[d]


@compiled
def share_gradients(votes, shares, dposes, dshares, dvotes, first, last, size):
    """Gradients of the shares, and that part of the votes' gradient which comes from the weighted sums."""
    parents, children = shares.shape[1], shares.shape[2]
    for step in range(last - first):
        r = first + step
        row, drow, share, dshare = votes[r], dvotes[r], shares[r], dshares[r]
        for j in range(parents):
            slope = dposes[r, j * size : (j + 1) * size]
            for i in range(children):
                begin = (i * parents + j) * size
                weight, vote, dvote = share[j, i], row[begin : begin + size], drow[begin : begin + size]
                total = ZERO
                for d in range(size):
                    total += slope[d] * vote[d]
                    dvote[d] = weight * slope[d]
                dshare[j, i] = total
