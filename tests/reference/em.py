"""EM routing written from procedure 1 of hinton2018 in plain Python numbers: slow, and nothing shared.

Densities are multiplied and divided as the text has them, without logarithms of sums.
"""

from __future__ import annotations

import math
from typing import Any

Numbers = list[float]


def em_routing(
    votes: Any,
    child_activation: list[Numbers],
    seen: list[list[int]],
    *,
    iterations: int,
    beta_u: Numbers,
    beta_a: Numbers,
    final_lambda: float,
    expected_mass: float,
    variance_floor: float,
    mean_damping: float = 0.0,
    mixing: bool = False,
    compete: str = "all parents",
) -> tuple[list[list[Numbers]], list[Numbers], list[list[list[Numbers]]]]:
    """One image: votes[p][i][j] is a vector, seen[p][i] the child in slot i of position p.

    Gives poses[p][j], activations[p][j] and the assignments[p][i][j] of the last M-step. ``compete`` may name one of
    the wrong sets that public code has: "one position" (types only) or "children".
    """
    positions, slots, parents, size = len(votes), len(votes[0]), len(votes[0][0]), len(votes[0][0][0])
    places = [(p, i, j) for p in range(positions) for i in range(slots) for j in range(parents)]

    def rivals(p: int, i: int, j: int) -> list[tuple[int, int, int]]:
        if compete == "one position":
            return [(p, i, k) for k in range(parents)]
        if compete == "children":
            return [(p, k, j) for k in range(slots)]
        return [(q, k, n) for q, k, n in places if seen[q][k] == seen[p][i]]

    assigned = {place: 1 / len(rivals(*place)) for place in places}
    means: dict[tuple[int, int], Numbers] = {}
    for iteration in range(iterations):
        # Rises as the authors' schedule does, and ends where that of three iterations ends.
        rise = (1 - 0.95 ** (iteration + 1)) / (1 - 0.95**iterations)
        inverse_temperature = rise * final_lambda * (1 - 0.95**3)
        variances, activations, masses = {}, {}, {}
        for p in range(positions):
            for j in range(parents):
                r = [assigned[p, i, j] * child_activation[p][i] for i in range(slots)]
                mass = sum(r)
                mean = [sum(r[i] * votes[p][i][j][h] for i in range(slots)) / mass for h in range(size)]
                if iteration:
                    old = means[p, j]
                    mean = [(1 - mean_damping) * mean[h] + mean_damping * old[h] for h in range(size)]
                variance = []
                for h in range(size):
                    spread = sum(r[i] * (votes[p][i][j][h] - mean[h]) ** 2 for i in range(slots))
                    variance.append(spread / mass + variance_floor)
                cost = sum((beta_u[j] + math.log(math.sqrt(variance[h]))) * mass / expected_mass for h in range(size))
                means[p, j], variances[p, j], masses[p, j] = mean, variance, mass
                activations[p, j] = 1 / (1 + math.exp(-inverse_temperature * (beta_a[j] - cost)))
        if mixing:
            activations = {parent: mass / sum(masses.values()) for parent, mass in masses.items()}
        if iteration == iterations - 1:
            break
        density = {}
        for p, i, j in places:
            product = 1.0
            for h in range(size):
                v = variances[p, j][h]
                off = votes[p][i][j][h] - means[p, j][h]
                product *= math.exp(-off * off / (2 * v)) / math.sqrt(2 * math.pi * v)
            density[p, i, j] = activations[p, j] * product
        assigned = {place: density[place] / sum(density[rival] for rival in rivals(*place)) for place in places}
    return (
        [[means[p, j] for j in range(parents)] for p in range(positions)],
        [[activations[p, j] for j in range(parents)] for p in range(positions)],
        [[[assigned[p, i, j] for j in range(parents)] for i in range(slots)] for p in range(positions)],
    )
