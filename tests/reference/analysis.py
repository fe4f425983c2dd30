"""The measures of analysis, number by number, on nested lists."""

from __future__ import annotations

import math

Vector = list[float]
Matrix = list[list[float]]


def compactness(vectors: Matrix) -> float:
    """KL of the normalized variances to uniform, for vectors [strength][dimension]."""
    return divergence(variance_shares(vectors))


def variance_shares(vectors: Matrix) -> Vector:
    """Each dimension's share of the variance."""
    variances = []
    for dimension in range(len(vectors[0])):
        values = [vector[dimension] for vector in vectors]
        mean = sum(values) / len(values)
        variances.append(sum((value - mean) ** 2 for value in values) / len(values))
    return [variance / sum(variances) for variance in variances]


def divergence(shares: Vector) -> float:
    """KL to uniform."""
    total = 0.0
    for share in shares:
        if share > 0:
            total += share * (math.log(share) - math.log(1 / len(shares)))
    return total


def compactness_of_mean_shares(images: list[Matrix]) -> float:
    """KL of the shares averaged over images [image][strength][dimension]."""
    means = [0.0] * len(images[0][0])
    for vectors in images:
        shares = variance_shares(vectors)
        for dimension, share in enumerate(shares):
            means[dimension] += share / len(images)
    return divergence(means)


def align(differences: Matrix) -> tuple[Vector, Vector]:
    """Align vector by power iteration on V'V, oriented; and the ratios."""
    size = len(differences[0])
    vector = [1.0 + 0.1 * number for number in range(size)]
    for _ in range(3000):
        product = [0.0] * size
        for difference in differences:
            along = sum(a * b for a, b in zip(difference, vector, strict=True))
            for number in range(size):
                product[number] += along * difference[number]
        length = math.sqrt(sum(value * value for value in product))
        vector = [value / length for value in product]
    dots = [sum(a * b for a, b in zip(difference, vector, strict=True)) for difference in differences]
    if sum(dots) < 0:
        vector = [-value for value in vector]
    lengths = [math.sqrt(sum(value * value for value in difference)) for difference in differences]
    return vector, [abs(dot) / length for dot, length in zip(dots, lengths, strict=True)]


def em_distances(votes: list[Matrix], activation: Vector, assignments: list[Matrix], damping: float) -> list[Matrix]:
    """Distances [iteration][child][parent] of votes [child][parent][number] to the means of one position."""
    children, parents, size = len(votes), len(votes[0]), len(votes[0][0])
    means: Matrix | None = None
    result = []
    for assignment in assignments:
        new = []
        for parent in range(parents):
            mass = sum(assignment[child][parent] * activation[child] for child in range(children))
            new.append(
                [
                    sum(assignment[c][parent] * activation[c] * votes[c][parent][n] for c in range(children)) / mass
                    for n in range(size)
                ]
            )
        if means is not None:
            new = [
                [(1 - damping) * value + damping * old for value, old in zip(row, before, strict=True)]
                for row, before in zip(new, means, strict=True)
            ]
        means = new
        result.append([[math.dist(votes[c][p], means[p]) for p in range(parents)] for c in range(children)])
    return result


def weighted_histogram(distances: Vector, weights: Vector, reach: float, bins: int) -> Vector:
    """Weights in equal bins from 0 to reach; what lies farther is left out, the end belongs to the last bin."""
    counts = [0.0] * bins
    for distance, weight in zip(distances, weights, strict=True):
        for number in range(bins):
            low, high = reach * number / bins, reach * (number + 1) / bins
            if low <= distance < high or (number == bins - 1 and distance == reach):
                counts[number] += weight
    return counts


def spread_couplings(couplings: list[Matrix], reached: Matrix, seen: list[list[list[int]]], children: int) -> Vector:
    """q of every child for one image: couplings [position][slot][parent], reached [position][parent]."""
    result = [0.0] * children
    for position, slots in enumerate(seen):
        for slot, behind in enumerate(slots):
            value = 0.0
            for parent, share in enumerate(reached[position]):
                value += couplings[position][slot][parent] * share
            present = [child for child in behind if child >= 0]
            for child in present:
                result[child] += value / len(present)
    return result


def entropy_over_parents(couplings: list[Matrix], owner: list[list[int]]) -> tuple[float, float]:
    """Mean entropy in nats and relative to the greatest, of the children of one image."""
    shares: dict[int, list[float]] = {}
    for position, slots in enumerate(couplings):
        for slot, parents in enumerate(slots):
            shares.setdefault(owner[position][slot], []).extend(abs(value) for value in parents)
    return _mean_entropy(list(shares.values()))


def entropy_over_children(couplings: list[Matrix]) -> tuple[float, float]:
    """The same where each parent of each position shares out its attention among the slots."""
    columns = [[slots[i][j] for i in range(len(slots))] for slots in couplings for j in range(len(slots[0]))]
    return _mean_entropy(columns)


def _mean_entropy(groups: Matrix) -> tuple[float, float]:
    nats, relative = [], []
    for group in groups:
        total = sum(group)
        entropy = -sum(value / total * math.log(value / total) for value in group if value > 0)
        nats.append(entropy)
        if len(group) > 1:
            relative.append(entropy / math.log(len(group)))
    return sum(nats) / len(nats), sum(relative) / len(relative)


def liveliness(presences: list[list[Vector]]) -> tuple[Vector, Vector, list[int], list[int]]:
    """Greatest presence, share of firsts, silent and never-first types, of presences [image][place][type]."""
    types = len(presences[0][0])
    greatest, wins = [0.0] * types, [0] * types
    for image in presences:
        for place in image:
            wins[place.index(max(place))] += 1
            for number, value in enumerate(place):
                greatest[number] = max(greatest[number], value)
    silent = [number for number in range(types) if greatest[number] < max(greatest) / 100]
    never = [number for number in range(types) if wins[number] == 0]
    return greatest, [count / sum(wins) for count in wins], silent, never
