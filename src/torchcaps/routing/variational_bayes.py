r"""Variational Bayes routing: each parent is a Gaussian with priors, and is active if its posterior has a low entropy.

Ribeiro, Leontidis, Kollias: Capsule Routing via Variational Bayes, 2020, https://arxiv.org/abs/1905.11455, section 3.

.. math::
    &r_{ij} = R_{ij} a_i, \quad N_j = \sum_i r_{ij}, \quad
    \alpha_j = \alpha_0 + N_j, \quad \kappa_j = \kappa_0 + N_j, \quad \nu_j = \nu_0 + N_j \\
    &m_j = \frac{1}{\kappa_j} \sum_i r_{ij} V_{ij}, \quad
    \Psi_j^{-1} = \Psi_0^{-1} + \sum_i r_{ij} (V_{ij} - m_j)(V_{ij} - m_j)^T + \kappa_0 m_j m_j^T \\
    &\ln \tilde\pi_j = \psi(\alpha_j) - \psi\Big(\sum_k \alpha_k\Big), \quad
    \ln \tilde\Lambda_j = \sum_{d=0}^{D-1} \psi\Big(\frac{\nu_j - d}{2}\Big) + D \ln 2 + \ln |\Psi_j| \\
    &R_{ij} \propto \tilde\pi_j \tilde\Lambda_j^{1/2}
    \exp\Big(-\frac{D}{2 \kappa_j} - \frac{\nu_j}{2} (V_{ij} - m_j)^T \Psi_j (V_{ij} - m_j)\Big) \\
    &a_j = \mathrm{logistic}\Big(\mathrm{norm}\big(-\tilde\pi_j H_j\big)\Big), \quad
    H_j = \frac{D}{2} \ln(2 \pi e) - \frac{1}{2} \ln \tilde\Lambda_j

The priors are a Dirichlet distribution of the mixing proportions (alpha_0 = 1), a Gaussian of the means (mean 0,
kappa_0 = 1) and a Wishart distribution of the precisions (Psi_0 = I, nu_0 = D + 1). They keep a parent with few votes
from collapsing onto one of them, which EM routing prevents with a variance floor. R starts at 1 / (number of the
child's parents), and is normalized over all parents of a child. The last norm is a batch normalization for each parent
type.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import (
    digamma,
    softmax_over_parents,
    squared_distance,
    weighted_squares,
    weighted_votes,
)
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Nonlinearity,
    Routed,
    RoutingRecord,
    check_iterations,
    routings,
)

COVARIANCES = ("diagonal", "full")
ALPHA, KAPPA = 1.0, 1.0  # priors; the mean is 0, the precision the identity and nu the pose size plus one
MOMENTUM = 0.1  # of the running statistics, as in torch


class VariationalBayesRouting(IterativeRouting):
    """Routing by a variational mixture of Gaussians.

    In training, activations are normalized with the statistics of the batch, otherwise with running statistics. The
    authors' release adds two learned offsets for each parent type, which the normalization removes again; they are
    omitted here.

    Args:
        iterations: T, the number of posterior updates, with new assignments between consecutive ones.
        covariance: ``diagonal``, or ``full`` covariances of the pose elements.
    """

    needs_activation = True
    gives_activation = True
    largest_vote = 1e6  # squares of larger votes, summed over the children, would make the precisions vanish
    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, shape: LayerShape, *, iterations: int = 3, covariance: str = "diagonal") -> None:
        super().__init__(shape)
        check_iterations(iterations)
        if iterations < 1:
            raise TorchcapsError(f"variational Bayes routing needs at least 1 iteration, got {iterations}")
        if covariance not in COVARIANCES:
            raise unknown_name("covariance", covariance, COVARIANCES)
        self.iterations, self.covariance = iterations, covariance
        self.register_buffer("running_mean", torch.full((shape.parents,), _score_without_votes(shape)))
        self.register_buffer("running_variance", torch.ones(shape.parents))

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
            raise TorchcapsError("variational Bayes routing needs the children's activations (B, P, I), got none")
        if previous is None:
            logits = votes.new_zeros(votes.shape[:4])
        else:
            offset, precision = previous.state
            distance = self._distance(votes, previous.pose, precision)
            logits = offset.unsqueeze(2) - 0.5 * distance  # (B, P, I, J)
        assignment = softmax_over_parents(logits, child_index)
        weighted = assignment * activation.unsqueeze(3)  # r (B, P, I, J)
        mass, size = weighted.sum(2), votes.shape[4]  # N (B, P, J)
        alpha, kappa, nu = ALPHA + mass, KAPPA + mass, size + 1 + mass
        mean = weighted_votes(weighted, votes) / kappa.unsqueeze(3)  # m (B, P, J, D)
        precision, log_determinant = self._precision(votes, weighted, mean)
        log_share = digamma(alpha) - digamma(alpha.sum(2, keepdim=True))
        halves = 0.5 * (nu.unsqueeze(3) - torch.arange(size, device=votes.device))  # (B, P, J, D)
        log_precision = digamma(halves).sum(3) + size * math.log(2) + log_determinant
        entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
        active = self._normalize(-log_share.exp() * entropy).sigmoid()
        offset = log_share + 0.5 * log_precision - 0.5 * size / kappa
        scale = nu.view(*nu.shape, *[1] * (precision.ndim - nu.ndim))
        return Routed(mean, active, [assignment], (offset, scale * precision))

    def _precision(self, votes: Tensor, weighted: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return Psi, (B, P, J, D) if diagonal, otherwise (B, P, J, D, D), and the logarithm of its determinant."""
        if self.covariance == "diagonal":
            inverse = 1 + weighted_squares(weighted, votes, mean) + KAPPA * mean.square()
            return 1 / inverse, -inverse.log().sum(3)
        deviation = votes - mean.unsqueeze(2)
        inverse = torch.einsum("bpij,bpijd,bpije->bpjde", weighted, deviation, deviation)
        inverse = inverse + KAPPA * mean.unsqueeze(4) * mean.unsqueeze(3)
        # A multiple of the rounding error, so that the matrix of huge votes is positive definite too.
        ridge = 1 + 4 * mean.shape[3] * torch.finfo(mean.dtype).eps * inverse.diagonal(dim1=3, dim2=4).sum(3)
        inverse = inverse + torch.diag_embed(ridge.unsqueeze(3).expand_as(mean))
        factor = torch.linalg.cholesky(inverse)
        return torch.cholesky_inverse(factor), -2 * factor.diagonal(dim1=3, dim2=4).log().sum(3)

    def _distance(self, votes: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
        """Squared distance of each vote from the mean, in units of the precision: (B, P, I, J)."""
        if self.covariance == "diagonal":
            return squared_distance(votes, mean, precision)
        deviation = votes - mean.unsqueeze(2)
        return torch.einsum("bpijd,bpjde,bpije->bpij", deviation, precision, deviation)

    def _normalize(self, score: Tensor) -> Tensor:
        """Normalize each parent type over images and positions: (B, P, J) to the same."""
        if self.training and score.shape[0] * score.shape[1] > 1:
            variance, mean = torch.var_mean(score, (0, 1), correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), MOMENTUM)
                self.running_variance.lerp_(variance.to(self.running_mean.dtype), MOMENTUM)
        else:
            mean, variance = self.running_mean.to(score.dtype), self.running_variance.to(score.dtype)
        return (score - mean) * (variance + 1e-5).rsqrt()

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}, covariance={self.covariance}"


def _score_without_votes(shape: LayerShape) -> float:
    """Score of a parent that only knows its priors, the first guess of the running mean."""

    def at(value: float) -> float:
        return digamma(torch.tensor(value, dtype=torch.float64, device="cpu")).item()

    size = shape.size
    log_precision = sum(at(0.5 * (size + 1 - element)) for element in range(size)) + size * math.log(2)
    entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
    return -math.exp(at(ALPHA) - at(ALPHA * shape.parents)) * entropy


routings.add(
    RoutingRecord(
        name="variational-bayes",
        description="Gaussian clusters of votes with priors, fitted by variational Bayes",
        paper="ribeiro2020",
        build=VariationalBayesRouting,
        iterative=True,
        any_child_order=True,
        needs="children with activations",
    )
)
