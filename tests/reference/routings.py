"""Routings of one pass, number by number. Votes are nested lists [child][parent][number] of one image and place."""

from __future__ import annotations

import math

Votes = list[list[list[float]]]
Matrix = list[list[float]]


def weighted_sum(votes: Votes, couplings: Matrix) -> Matrix:
    """Pose [parent][number] for couplings [child][parent]."""
    poses = []
    for parent in range(len(votes[0])):
        pose = []
        for number in range(len(votes[0][0])):
            total = 0.0
            for child in range(len(votes)):
                total += couplings[child][parent] * votes[child][parent][number]
            pose.append(total)
        poses.append(pose)
    return poses


def attention(votes: Votes, kernel: list[list[list[list[float]]]], temperature: float) -> tuple[Matrix, Matrix]:
    """Pose and couplings. kernel [parent][child it is about][child it looks at][number]."""
    children, parents = len(votes), len(votes[0])
    couplings = [[0.0] * parents for _ in range(children)]
    for parent in range(parents):
        logits = []
        for child in range(children):
            logit = 0.0
            for other in range(children):
                for number, value in enumerate(votes[other][parent]):
                    logit += kernel[parent][child][other][number] * value
            logits.append(logit / temperature)
        total = sum(math.exp(logit - max(logits)) for logit in logits)
        for child in range(children):
            couplings[child][parent] = math.exp(logits[child] - max(logits)) / total
    return weighted_sum(votes, couplings), couplings


def softmax(values: list[float]) -> list[float]:
    total = sum(math.exp(value - max(values)) for value in values)
    return [math.exp(value - max(values)) / total for value in values]


def self_routing(
    votes: Votes, poses: Matrix, activations: list[float], weight: list[Matrix], bias: Matrix
) -> tuple[Matrix, list[float], Matrix]:
    """Pose, activations and couplings. poses [child][number], weight [child][number][parent], bias [child][parent]."""
    children, parents = len(votes), len(votes[0])
    couplings = []
    for child in range(children):
        logits = []
        for parent in range(parents):
            logit = bias[child][parent]
            for number, value in enumerate(poses[child]):
                logit += weight[child][number][parent] * value
            logits.append(logit)
        couplings.append(softmax(logits))
    result, active = [], []
    for parent in range(parents):
        mass, pose = 0.0, [0.0] * len(votes[0][0])
        for child in range(children):
            weight_here = activations[child] * couplings[child][parent]
            mass += weight_here
            for number, value in enumerate(votes[child][parent]):
                pose[number] += weight_here * value
        active.append(mass / sum(activations))
        result.append([value / mass for value in pose])
    return result, active, couplings


def self_attention(votes: Votes, bias: Matrix) -> tuple[Matrix, Matrix]:
    """Pose and couplings, with the product of every pair of votes for a parent written out."""
    children, parents, size = len(votes), len(votes[0]), len(votes[0][0])
    couplings = []
    for child in range(children):
        logits = []
        for parent in range(parents):
            total = 0.0
            for other in range(children):
                for number in range(size):
                    total += votes[child][parent][number] * votes[other][parent][number]
            logits.append(total / math.sqrt(size))
        couplings.append([share + bias[child][parent] for parent, share in enumerate(softmax(logits))])
    return weighted_sum(votes, couplings), couplings


def inverted_attention(votes: Votes, iterations: int) -> tuple[Matrix, Matrix]:
    """Pose before the layer normalization, and couplings."""
    children, parents, size = len(votes), len(votes[0]), len(votes[0][0])
    couplings = [[1 / parents] * parents for _ in range(children)]
    pose = weighted_sum(votes, couplings)
    for _ in range(iterations - 1):
        normal = []
        for vector in pose:
            mean = sum(vector) / size
            variance = sum((value - mean) ** 2 for value in vector) / size
            normal.append([(value - mean) / math.sqrt(variance + 1e-5) for value in vector])
        for child in range(children):
            products = [
                sum(a * b for a, b in zip(votes[child][parent], normal[parent], strict=True)) / math.sqrt(size)
                for parent in range(parents)
            ]
            couplings[child] = softmax(products)
        pose = weighted_sum(votes, couplings)
    return pose, couplings


def heinsen(
    votes: Votes, activations: list[float], benefit: Matrix, cost: Matrix, iterations: int, floor: float
) -> tuple[Matrix, list[float], Matrix]:
    """Means, activations and the last assignments R. benefit and cost are [child][parent]."""
    children, parents, size = len(votes), len(votes[0]), len(votes[0][0])
    means, variances, active = [], [], []
    assigned = [[1 / parents] * parents for _ in range(children)]
    for iteration in range(iterations):
        if iteration:
            for child in range(children):
                densities = []
                for parent in range(parents):
                    density = active[parent]
                    for number in range(size):
                        variance = variances[parent][number]
                        distance = votes[child][parent][number] - means[parent][number]
                        density *= math.exp(-(distance**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
                    densities.append(density)
                assigned[child] = [density / sum(densities) for density in densities]
        means, variances, active = [], [], []
        for parent in range(parents):
            logit, mass = 0.0, 0.0
            for child in range(children):
                used = activations[child] * assigned[child][parent]
                ignored = activations[child] - used
                logit += benefit[child][parent] * used - cost[child][parent] * ignored
                mass += used
            active.append(1 / (1 + math.exp(-logit)))
            mean, variance = [0.0] * size, [0.0] * size
            for number in range(size):
                for child in range(children):
                    share = activations[child] * assigned[child][parent] / mass
                    mean[number] += share * votes[child][parent][number]
                for child in range(children):
                    share = activations[child] * assigned[child][parent] / mass
                    variance[number] += share * (votes[child][parent][number] - mean[number]) ** 2
                variance[number] += floor
            means.append(mean)
            variances.append(variance)
    return means, active, assigned


def discriminative_step(
    batch: list[Votes], labels: list[list[int]], couplings: Matrix, penalty: str, gamma: float, weight: float
) -> Matrix:
    """Couplings after one ascent step, with U U^T written out, as the paper's equations 13 and 15 read."""
    children, parents = len(couplings), len(couplings[0])
    result = [[0.0] * parents for _ in range(children)]
    for j in range(parents):
        gradient = [0.0] * children
        for votes, present in zip(batch, labels, strict=True):
            sign = 1.0 if j in present else -1.0
            for a in range(children):
                for b in range(children):
                    outer = sum(x * y for x, y in zip(votes[a][j], votes[b][j], strict=True))  # (U U^T)_ab
                    gradient[a] += 2 * sign * outer * couplings[b][j]
        for a in range(children):
            value = couplings[a][j]
            if penalty == "l2":
                gradient[a] -= 2 * weight * value
            elif value > 0:
                gradient[a] -= 2 * weight  # equation 15 has the factor 2 before the penalty too
            elif value < 0:
                gradient[a] += 2 * weight
            result[a][j] = value + gamma * gradient[a]
    return result
