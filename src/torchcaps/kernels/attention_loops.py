"""Loops of fused attention routing, compiled by numba: rows of votes (I*J*D), shares (J, I), poses (J*D)."""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import ONE, ZERO, compiled, inner


@inner
def softmax(row, scale):
    """Replace logits by the softmax of logits * scale."""
    largest = row[0] * scale
    for i in range(1, row.shape[0]):
        largest = max(largest, row[i] * scale)
    total = ZERO
    for i in range(row.shape[0]):
        row[i] = np.exp(row[i] * scale - largest)
        total += row[i]
    for i in range(row.shape[0]):
        row[i] *= ONE / total


@compiled
def attend(votes, shares, poses, scale, first, last, size):
    """Replace the logits in ``shares`` by their softmax over the children, and sum each parent's votes with them."""
    parents, children = shares.shape[1], shares.shape[2]
    for step in range(last - first):
        r = first + step
        row, share, pose = votes[r], shares[r], poses[r]
        for j in range(parents):
            softmax(share[j], scale)
            own = pose[j * size : (j + 1) * size]
            own[:] = ZERO
            for i in range(children):
                weight, vote = share[j, i], row[(i * parents + j) * size : (i * parents + j + 1) * size]
                for d in range(size):
                    own[d] += weight * vote[d]


@compiled
def logit_gradients(votes, shares, dposes, dlogits, dvotes, scale, first, last, size):
    """Gradients of the logits, and that part of the votes' gradient which comes from the weighted sums."""
    parents, children = shares.shape[1], shares.shape[2]
    for step in range(last - first):
        r = first + step
        row, drow, share, dlogit = votes[r], dvotes[r], shares[r], dlogits[r]
        for j in range(parents):
            slope = dposes[r, j * size : (j + 1) * size]
            mean = ZERO
            for i in range(children):
                begin = (i * parents + j) * size
                weight, vote, dvote = share[j, i], row[begin : begin + size], drow[begin : begin + size]
                total = ZERO
                for d in range(size):
                    total += slope[d] * vote[d]
                    dvote[d] = weight * slope[d]
                dlogit[j, i] = total
                mean += weight * total
            for i in range(children):
                dlogit[j, i] = scale * share[j, i] * (dlogit[j, i] - mean)
