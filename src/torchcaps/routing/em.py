r"""EM routing: each parent is a Gaussian fitted to its votes, and is active if they form a tight cluster.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, procedure 1.

.. math::
    &\text{M:}\quad r_{ij} = R_{ij} a_i, \quad m_j = \sum_i r_{ij}, \quad
    \mu_j = \frac{1}{m_j} \sum_i r_{ij} V_{ij}, \quad
    \sigma_j^2 = \frac{1}{m_j} \sum_i r_{ij} (V_{ij} - \mu_j)^2 + \epsilon \\
    &\phantom{\text{M:}}\quad a_j = \mathrm{logistic}\Big(\lambda_t \big(\beta_a - \frac{m_j}{\bar m}
    \sum_h (\beta_u + \log \sigma_j^h)\big)\Big), \quad
    \lambda_t = \lambda (1 - 0.95^{t+1}) \frac{1 - 0.95^3}{1 - 0.95^T} \\
    &\text{E:}\quad R_{ij} = \frac{a_j\, \mathcal N(V_{ij}; \mu_j, \sigma_j^2)}
    {\sum_k a_k\, \mathcal N(V_{ik}; \mu_k, \sigma_k^2)}

R starts at 1 / (number of the child's parents), and k runs over all parents of the child, at all positions that see it.

Differences from the paper and the authors' release, which make training stable with 1 to 5 iterations:

- Mass is measured in units of m-bar, the mass of a parent if every child has activation 1/2 and uniform assignments.
  This only rescales the paper's constants (lambda / m-bar, m-bar * beta_a), but makes lambda independent of layer size.
- The betas are initialized so that a parent with mass m-bar and votes at the variance floor has activation 1/2, and
  each further vote saves half a nat per pose element. Mass then increases the activation from the first step; with
  betas at the break-even point its effect has a random sign. This matters most: with 16 filters, 4 types per layer,
  3 iterations and a floor of 1, accuracy on 250 MNIST test images after 200 steps of batch size 32 was 78 %, not 36 %.
- The inverse temperature is normalized so that the last of T iterations always has that of the third of three. Without
  the fraction, a class capsule without votes would have the initial activation 0.31, 0.17, 0.09 and 0.03 with 1, 2, 3
  and 5 iterations, and with 1 or 2 the spread loss could not reach its margin of 0.9: a comparison of iterations would
  compare temperatures. With 3 iterations the fraction is 1.
- The variance floor epsilon is 0.2 and lambda rises toward 2; the release uses 0.0005 and 0.01. With a small floor the
  16-D densities make assignments nearly one-hot, and their gradients are noise. A floor of 0.2 learned slightly faster
  than a floor of 1: 85 % in the same trial.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import softmax_over_parents
from torchcaps.kernels.em import Schedule, fused_em, fused_em_applies
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Nonlinearity,
    Routed,
    RoutingRecord,
    check_iterations,
    routings,
)

ACTIVATIONS = ("mdl", "mixing")
USUAL_ITERATIONS = 3  # those of the paper; the last inverse temperature is theirs with any number of iterations
FIRST_SAVING = 0.5  # nats per pose element that a vote saves at initialization if it is assigned to an active parent


class EMRouting(IterativeRouting):
    """Routing by expectation maximization.

    Args:
        iterations: T, the number of M-steps, with an E-step between consecutive ones.
        activation: ``mdl`` computes a parent's activation from the description length that it saves; ``mixing`` from
            its fraction of all assignments in the layer, without betas.
        final_lambda: the limit of the inverse temperature's schedule of 3 iterations. With any number of iterations,
            the last M-step has the inverse temperature ``final_lambda * (1 - 0.95**3)``.
        variance_floor: epsilon, added to every variance.
        mean_damping: weight of the previous mean in the new one.
        mass_floor: distributed uniformly over all children in means and variances, so that they are defined for a
            parent without active children.
        gradient_steps: the gradient flows through this many of the last M-steps and the E-steps between them; earlier
            assignments are constants. None: through all.
        recompute: store only the children and recompute votes and routing in the backward pass, a few images at a time.
            For devices and settings without the fused kernel, which never stores votes.
    """

    needs_activation = True
    gives_activation = True
    largest_vote = 1e6  # squares of larger votes, divided by a small variance, would overflow float32

    def __init__(
        self,
        shape: LayerShape,
        *,
        iterations: int = 3,
        activation: str = "mdl",
        final_lambda: float = 2.0,
        variance_floor: float = 0.2,
        mean_damping: float = 0.0,
        mass_floor: float = 1e-7,
        gradient_steps: int | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__(shape)
        if activation not in ACTIVATIONS:
            raise unknown_name("EM activation", activation, ACTIVATIONS)
        check_iterations(iterations)
        if gradient_steps is not None and gradient_steps < 1:
            raise TorchcapsError(f"EM routing needs a gradient through at least 1 M-step, got {gradient_steps}")
        if iterations < 1 or min(final_lambda, variance_floor, mass_floor) <= 0 or not 0 <= mean_damping < 1:
            raise TorchcapsError(
                "EM routing needs at least 1 iteration, positive final_lambda, variance_floor and mass_floor, and "
                f"mean_damping from 0 to below 1; got iterations={iterations}, final_lambda={final_lambda}, "
                f"variance_floor={variance_floor}, mass_floor={mass_floor}, mean_damping={mean_damping}"
            )
        self.iterations, self.activation = iterations, activation
        ratio = (1 - 0.95**USUAL_ITERATIONS) / (1 - 0.95**iterations)
        self.temperatures = tuple(final_lambda * (1 - 0.95 ** (t + 1)) * ratio for t in range(iterations))
        self.final_lambda, self.variance_floor = final_lambda, variance_floor
        self.mean_damping, self.mass_floor, self.recompute = mean_damping, mass_floor, recompute
        self.gradient_steps = min(gradient_steps or iterations, iterations)
        distinct = shape.positions * shape.children if shape.distinct is None else shape.distinct
        self.expected_mass = 0.5 * distinct / (shape.positions * shape.parents)
        if activation == "mdl":
            self.beta_u = nn.Parameter(torch.full((shape.parents,), -FIRST_SAVING - 0.5 * math.log(variance_floor)))
            self.beta_a = nn.Parameter(torch.full((shape.parents,), -FIRST_SAVING * shape.size))

    def step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        previous: Routed | None,
        iteration: int,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        if activation is None:
            raise TorchcapsError("EM routing needs the children's activations (B, P, I), got none")
        if previous is None:
            assignment = softmax_over_parents(votes.new_zeros(votes.shape[:4]), child_index)  # R: 1 / number of parents
        else:
            variance, log_activation, log_deviation = previous.state
            squares = (votes - previous.pose.unsqueeze(2)).square()  # (B, P, I, J, D)
            distance = 0.5 * (squares / variance.unsqueeze(2)).sum(4)  # (B, P, I, J)
            # The factor of 2 pi is the same for all parents and cancels.
            assignment = softmax_over_parents((log_activation - log_deviation).unsqueeze(2) - distance, child_index)
        mean_before = None if previous is None else previous.pose
        if mean_before is not None and iteration == self.iterations - self.gradient_steps:
            assignment, mean_before = assignment.detach(), mean_before.detach()
        weighted = assignment * activation.unsqueeze(3)  # r (B, P, I, J)
        mass = weighted.sum(2)  # (B, P, J)
        share = (weighted + self.mass_floor / votes.shape[2]) / (mass + self.mass_floor).unsqueeze(2)
        share = share.unsqueeze(4)  # (B, P, I, J, 1), sums to one over the children
        mean = (share * votes).sum(2)  # (B, P, J, D)
        if mean_before is not None:
            mean = torch.lerp(mean, mean_before, self.mean_damping)
        variance = (share * (votes - mean.unsqueeze(2)).square()).sum(2) + self.variance_floor
        log_deviation = 0.5 * variance.log().sum(3)  # (B, P, J), summed over the pose
        log_activation, active = self._activate(mass, log_deviation, iteration)
        return Routed(mean, active, [assignment], (variance, log_activation, log_deviation))

    def route_factors(self, factors: VoteFactors, nonlinearity: Nonlinearity) -> Routed | None:
        floors = (self.mass_floor, self.variance_floor)
        schedule = Schedule(
            self.temperatures, self.expected_mass, *floors, self.mean_damping, gradient_steps=self.gradient_steps
        )
        kind = factors.poses.dtype
        betas = (self.beta_u.to(kind), self.beta_a.to(kind)) if self.activation == "mdl" else None
        if not fused_em_applies(factors, betas, schedule):
            return None
        return Routed(*fused_em(factors, betas, schedule, self._route_plainly))

    def _route_plainly(self, factors: VoteFactors) -> tuple[Tensor, Tensor]:
        assert factors.activation is not None  # checked by fused_em_applies
        seen = factors.activation[:, factors.child_index]  # (B, P, I)
        child_index = factors.child_index if len(factors.child_index) > 1 else None
        routed = self(factors.votes(), seen, child_index=child_index, nonlinearity=lambda pose: pose)
        assert routed.activation is not None
        return routed.pose, routed.activation

    def _activate(self, mass: Tensor, log_deviation: Tensor, iteration: int) -> tuple[Tensor, Tensor]:
        """Compute the logarithm of the parents' activations, and the activations: (B, P, J) each."""
        if self.activation == "mixing":
            mass = mass.clamp_min(self.mass_floor)
            active = mass / mass.sum((1, 2), keepdim=True)
            return active.log(), active
        cost = mass / self.expected_mass * (self.shape.size * self.beta_u + log_deviation)
        logit = self.temperatures[iteration] * (self.beta_a - cost)
        return F.logsigmoid(logit), logit.sigmoid()

    def extra_repr(self) -> str:
        return (
            f"iterations={self.iterations}, activation={self.activation}, final_lambda={self.final_lambda}, "
            f"variance_floor={self.variance_floor}, mean_damping={self.mean_damping}"
        )


routings.add(
    RoutingRecord(
        name="em",
        description="Gaussian clusters of votes, fitted by EM",
        paper="hinton2018",
        build=EMRouting,
        iterative=True,
        any_child_order=True,
        any_parent_order=True,
        needs="children with activations",
    )
)
