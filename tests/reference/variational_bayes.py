"""Variational Bayes routing of one image, number by number, with scipy-free special functions and plain lists."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray


def digamma(value: float) -> float:
    """Digamma by its recurrence and the difference of log-gamma: independent of any series of the source."""
    total = 0.0
    while value < 1e4:
        total -= 1 / value
        value += 1
    return total + math.log(value) - 1 / (2 * value) - 1 / (12 * value**2)


def route(votes: Array, activations: Array, children: list[list[int]], iterations: int, full: bool) -> dict[str, Array]:
    """Votes [position][slot][parent][number], activations [position][slot], children: the child in each slot.

    Returns the pose, the score of each parent before normalization and sigmoid, and the last assignments.
    """
    positions, slots, parents, size = votes.shape
    assignment = np.zeros((positions, slots, parents))
    for p in range(positions):
        for i in range(slots):
            seen = sum(row.count(children[p][i]) for row in children)
            assignment[p, i] = 1 / (seen * parents)
    for iteration in range(iterations):
        mean = np.zeros((positions, parents, size))
        score = np.zeros((positions, parents))
        logs = np.zeros((positions, slots, parents))
        for p in range(positions):
            mass = [sum(assignment[p, i, j] * activations[p, i] for i in range(slots)) for j in range(parents)]
            alpha = [1 + each for each in mass]
            for j in range(parents):
                mu = sum(assignment[p, i, j] * activations[p, i] * votes[p, i, j] for i in range(slots)) / mass[j]
                kappa, nu = 1 + mass[j], size + 1 + mass[j]
                mean[p, j] = mass[j] * mu / kappa
                # As the paper writes it: scatter around the weighted mean, plus the pull toward the prior's mean.
                inverse = np.eye(size) + mass[j] / kappa * np.outer(mu, mu)
                for i in range(slots):
                    deviation = votes[p, i, j] - mu
                    inverse += assignment[p, i, j] * activations[p, i] * np.outer(deviation, deviation)
                if not full:
                    inverse = np.diag(np.diag(inverse))
                psi = np.linalg.inv(inverse)
                log_pi = digamma(alpha[j]) - digamma(sum(alpha))
                log_lambda = sum(digamma((nu - d) / 2) for d in range(size))
                log_lambda += size * math.log(2) + math.log(np.linalg.det(psi))
                entropy = size / 2 * math.log(2 * math.pi * math.e) - log_lambda / 2
                score[p, j] = -math.exp(log_pi) * entropy
                for i in range(slots):
                    deviation = votes[p, i, j] - mean[p, j]
                    distance = size / kappa + nu * float(deviation @ psi @ deviation)
                    logs[p, i, j] = log_pi + log_lambda / 2 - size / 2 * math.log(2 * math.pi) - distance / 2
        used = assignment
        if iteration < iterations - 1:
            assignment = np.zeros_like(logs)
            for p in range(positions):
                for i in range(slots):
                    rivals = [
                        (q, k) for q in range(positions) for k in range(slots) if children[q][k] == children[p][i]
                    ]
                    total = sum(math.exp(logs[q, k, j]) for q, k in rivals for j in range(parents))
                    for j in range(parents):
                        assignment[p, i, j] = math.exp(logs[p, i, j]) / total
    return {"pose": mean, "score": score, "assignment": used}
