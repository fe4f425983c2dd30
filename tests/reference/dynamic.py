"""Dynamic routing written from procedure 1 of sabour2017 in plain Python numbers: slow, and nothing shared."""

from __future__ import annotations

import math
from typing import Any


def squash(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    if length == 0:
        return [0.0 for _ in vector]
    factor = length**2 / (1 + length**2) / length
    return [factor * x for x in vector]


def dynamic_routing(votes: Any, iterations: int) -> tuple[list[list[float]], list[list[list[float]]]]:
    """One image, fully connected. votes[i][j] is a vector; gives poses[j] after squash and couplings[t][i][j]."""
    children, parents, size = len(votes), len(votes[0]), len(votes[0][0])
    logits = [[0.0] * parents for _ in range(children)]
    history = []
    for _ in range(iterations):
        couplings = []
        for i in range(children):
            top = max(logits[i])
            weights = [math.exp(b - top) for b in logits[i]]
            couplings.append([w / sum(weights) for w in weights])
        history.append(couplings)
        poses = []
        for j in range(parents):
            total = [sum(couplings[i][j] * votes[i][j][d] for i in range(children)) for d in range(size)]
            poses.append(squash(total))
        for i in range(children):
            for j in range(parents):
                logits[i][j] += sum(votes[i][j][d] * poses[j][d] for d in range(size))
    return poses, history


def competing_dynamic_routing(votes: Any, seen: list[list[int]], iterations: int) -> list[list[list[float]]]:
    """One image, convolutional: votes[p][i][j], and seen[p][i] is the child in slot i of position p.

    A child's couplings sum to one over all positions that see it. Gives poses[p][j] after squash.
    """
    positions, slots, parents = len(votes), len(votes[0]), len(votes[0][0])
    size = len(votes[0][0][0])
    logits = [[[0.0] * parents for _ in range(slots)] for _ in range(positions)]
    for _ in range(iterations):
        totals: dict[int, float] = {}
        for p in range(positions):
            for i in range(slots):
                totals[seen[p][i]] = totals.get(seen[p][i], 0.0) + sum(math.exp(b) for b in logits[p][i])
        poses = []
        for p in range(positions):
            row = []
            for j in range(parents):
                total = [0.0] * size
                for i in range(slots):
                    share = math.exp(logits[p][i][j]) / totals[seen[p][i]]
                    for d in range(size):
                        total[d] += share * votes[p][i][j][d]
                row.append(squash(total))
            poses.append(row)
        for p in range(positions):
            for i in range(slots):
                for j in range(parents):
                    logits[p][i][j] += sum(votes[p][i][j][d] * poses[p][j][d] for d in range(size))
    return poses
