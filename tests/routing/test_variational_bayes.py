from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.reference import variational_bayes as reference
from torchcaps.errors import TorchcapsError
from torchcaps.functional import digamma
from torchcaps.routing import VariationalBayesRouting, create_routing
from torchcaps.routing.base import LayerShape
from torchcaps.testing import check_routing

SHAPE = LayerShape(2, 4, 3, 4, activations=True)
CHILDREN = [[0, 1, 2, 3], [2, 3, 4, 5]]


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_agrees_with_the_reference(covariance: str, iterations: int) -> None:
    torch.manual_seed(0)
    routing = VariationalBayesRouting(SHAPE, iterations=iterations, covariance=covariance).double().eval()
    votes, activation = torch.randn(2, 2, 4, 3, 4).double(), torch.rand(2, 2, 4).double()
    routed = routing(votes, activation, child_index=torch.tensor(CHILDREN))
    assert routed.activation is not None
    assert len(routed.couplings) == iterations
    for image in range(2):
        wanted = reference.route(
            votes[image].numpy(), activation[image].numpy(), CHILDREN, iterations, covariance == "full"
        )
        score = torch.logit(routed.activation[image]) * (1 + 1e-5) ** 0.5 + routing.running_mean  # variance 1
        torch.testing.assert_close(routed.pose[image], torch.from_numpy(wanted["pose"]), rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(score, torch.from_numpy(wanted["score"]), rtol=1e-6, atol=1e-7)
        assignment = torch.from_numpy(wanted["assignment"])
        torch.testing.assert_close(routed.couplings[-1][image], assignment, rtol=1e-6, atol=1e-8)


def test_full_covariances_keep_every_promise() -> None:
    check_routing(partial(VariationalBayesRouting, covariance="full"), any_child_order=True)


def test_activations_are_normalized_over_the_batch_in_training_only() -> None:
    torch.manual_seed(0)
    routing = VariationalBayesRouting(SHAPE)
    votes, activation = torch.randn(8, 2, 4, 3, 4), torch.rand(8, 2, 4)
    found = routing(votes, activation).activation
    assert found is not None
    logits = torch.logit(found)
    torch.testing.assert_close(logits.mean((0, 1)), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(logits.var((0, 1), correction=0), torch.ones(3), rtol=1e-3, atol=0)
    assert routing.running_mean.abs().min() > 0
    before = routing.running_mean.clone()
    alone = torch.cat([routing.eval()(votes[i : i + 1], activation[i : i + 1]).activation for i in range(8)])
    torch.testing.assert_close(routing(votes, activation).activation, alone)
    assert torch.equal(routing.running_mean, before)


def test_the_priors_keep_a_lone_vote_from_collapsing() -> None:
    """With one child, EM's variance would be its floor; here the posterior mean is half of the vote."""
    routing = VariationalBayesRouting(LayerShape(1, 1, 1, 4, activations=True), iterations=1)
    routed = routing(torch.full((1, 1, 1, 4), 6.0), torch.ones(1, 1))
    torch.testing.assert_close(routed.pose, torch.full((1, 1, 4), 3.0))


def test_a_parent_without_votes_starts_in_the_middle() -> None:
    routing = VariationalBayesRouting(SHAPE).eval()
    found = routing(torch.randn(2, 2, 4, 3, 4), torch.zeros(2, 2, 4)).activation
    torch.testing.assert_close(found, torch.full((2, 2, 3), 0.5))


def test_digamma_is_torch_s() -> None:
    values = torch.linspace(1, 300, 500).double()
    torch.testing.assert_close(digamma(values), torch.digamma(values), rtol=1e-11, atol=1e-11)


def test_refusals() -> None:
    with pytest.raises(TorchcapsError, match="at least 1 iteration, got 0"):
        create_routing("variational-bayes", SHAPE, iterations=0)
    with pytest.raises(TorchcapsError, match="covariance 'ful' is unknown: did you mean 'full'"):
        create_routing("variational-bayes", SHAPE, covariance="ful")
