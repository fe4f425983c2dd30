from __future__ import annotations

import torch
from torch import Tensor

from tests.reference import losses as reference
from torchcaps.losses import routing_free_energy


def layer() -> dict[str, Tensor]:
    """A layer in float64: 2 images, 6 children, 3 parents, 4-D poses, after an M-step."""
    votes, child = torch.randn(2, 6, 3, 4, dtype=torch.float64), torch.rand(2, 6, dtype=torch.float64) + 0.1
    assignment = torch.randn(2, 6, 3, dtype=torch.float64).softmax(2)
    weights = (child.unsqueeze(2) * assignment).unsqueeze(3)
    mean = (weights * votes).sum(1) / weights.sum(1)
    return {
        "votes": votes,
        "child_activation": child,
        "assignment": assignment,
        "mean": mean,
        "variance": (weights * (votes - mean.unsqueeze(1)).square()).sum(1) / weights.sum(1),
        "activation": torch.rand(2, 3, dtype=torch.float64) * 0.8 + 0.1,
        "beta_u": torch.randn(3, dtype=torch.float64),
        "beta_a": torch.randn(3, dtype=torch.float64),
    }


def test_agrees_with_the_reference() -> None:
    found = layer()
    shared = [found["beta_u"].tolist(), found["beta_a"].tolist()]
    each = [value for name, value in found.items() if not name.startswith("beta")]
    wanted = [reference.routing_free_energy(*(part[b].tolist() for part in each), *shared) for b in range(2)]
    torch.testing.assert_close(routing_free_energy(**found), torch.tensor(wanted, dtype=torch.float64))


def test_gradient_in_double_precision() -> None:
    inputs = [value.requires_grad_() for value in layer().values()]
    assert torch.autograd.gradcheck(routing_free_energy, tuple(inputs))


def test_the_steps_of_the_procedure_minimize_it() -> None:
    found = layer()
    for name in ("mean", "variance"):
        found[name].requires_grad_()
    slopes = torch.autograd.grad(routing_free_energy(**found).sum(), (found["mean"], found["variance"]))
    for slope in slopes:  # the M-step is a stationary point
        torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-10, rtol=0)
    off = (found["votes"] - found["mean"].unsqueeze(1)).square() / found["variance"].unsqueeze(1)
    energy = 0.5 * (off + found["variance"].unsqueeze(1).log()).sum(3) + found["beta_u"]
    best = routing_free_energy(**found | {"assignment": (-energy).softmax(2)})  # the E-step
    assert (best < routing_free_energy(**found)).all()
    for _ in range(20):
        other = (-energy + 0.1 * torch.randn_like(energy)).softmax(2)
        assert (best <= routing_free_energy(**found | {"assignment": other})).all()


def test_certain_activations_and_assignments_are_finite() -> None:
    found = layer() | {"activation": torch.tensor([[0.0, 1.0, 0.5]] * 2, dtype=torch.float64)}
    found["assignment"] = torch.eye(3, dtype=torch.float64)[torch.tensor([[0, 1, 2, 0, 1, 2]] * 2)]
    assert routing_free_energy(**found).isfinite().all()
