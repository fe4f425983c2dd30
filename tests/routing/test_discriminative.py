from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.reference.routings import discriminative_step, weighted_sum
from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.functional import squash
from torchcaps.layers import CapsuleLayer, Capsules, CapsuleStack, DenseTransform
from torchcaps.losses import margin_loss, one_hot
from torchcaps.models import create_model
from torchcaps.routing import create_routing
from torchcaps.routing.base import LayerShape
from torchcaps.routing.discriminative import DiscriminativeRouting

SEARCH = Path(__file__).parents[2] / "results" / "discriminative-step.json"


def layer(children: int, parents: int, **options: float | str) -> CapsuleLayer:
    transform = DenseTransform(children, parents, 4, 4)
    return CapsuleLayer(transform, DiscriminativeRouting(transform.shape, **options), squash)  # type: ignore[arg-type]


def randomised(stack: CapsuleStack) -> CapsuleStack:
    for each in stack:
        each.routing.couplings.copy_(torch.randn_like(each.routing.couplings))
    return stack


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("labels", [[[0], [2], [1]], [[0, 2], [1, 2], [0, 1]]], ids=["one label", "two labels"])
def test_one_step_is_the_paper_s(penalty: str, labels: list[list[int]]) -> None:
    stack = randomised(CapsuleStack(layer(6, 3, penalty=penalty, gamma=0.05, weight=0.3)))
    routing = stack.layers[0].routing
    routing.couplings[0, 2, 1] = 0.0  # where the l1 penalty has its kink
    before, votes = routing.couplings.clone(), torch.randn(3, 1, 6, 3, 4)
    stack.after_step(votes, one_hot(torch.tensor(labels), 3))
    expected = discriminative_step(votes[:, 0].tolist(), labels, before[0].tolist(), penalty, 0.05, 0.3)
    torch.testing.assert_close(routing.couplings[0], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_pose_agrees_with_the_reference() -> None:
    routing = create_routing("discriminative-l2", LayerShape(2, 6, 3, 4))
    votes = torch.randn(3, 2, 6, 3, 4)
    pose = routing(votes, nonlinearity=squash).pose
    expected = weighted_sum(votes[1, 1].tolist(), [[1 / 3] * 3] * 6)
    torch.testing.assert_close(pose[1, 1], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def objective(stack: CapsuleStack, capsules: Tensor, targets: Tensor) -> Tensor:
    """What the couplings climb, straight from its definition and without the penalty."""
    for each in stack:
        votes = each.transform(Capsules(capsules))
        pose = (each.routing.couplings.unsqueeze(3) * votes).sum(2)
        capsules = squash(pose).unflatten(1, each.transform.grid)
    return ((2 * targets - 1) * pose[:, 0].square().sum(2)).sum()


def test_lower_layers_follow_the_same_objective_by_the_chain_rule() -> None:
    gamma = 1e-3
    settings = {"penalty": "l2", "gamma": gamma, "weight": 0.0}
    stack = randomised(CapsuleStack(layer(5, 4, **settings), layer(4, 6, **settings), layer(6, 3, **settings))).double()
    capsules, targets = torch.randn(7, 1, 1, 5, 4).double(), one_hot(torch.randint(3, (7,)), 3).double()
    before = [each.routing.couplings.clone() for each in stack]
    stack.train()
    _, votes = stack(Capsules(capsules))
    stack.after_step(votes, targets)
    steps = [(each.routing.couplings - old) / gamma for each, old in zip(stack, before, strict=True)]
    for depth, (each, step) in enumerate(zip(stack, steps, strict=True)):
        for child, parent in [(0, 0), (2, 1), (3, 2)]:
            values = []
            for shift in (1e-5, -1e-5):
                for other, old in zip(stack, before, strict=True):
                    other.routing.couplings.copy_(old)
                each.routing.couplings[0, child, parent] += shift
                values.append(objective(stack, capsules, targets).item())
            slope = (values[0] - values[1]) / 2e-5
            assert step[0, child, parent].item() == pytest.approx(slope, rel=1e-3, abs=1e-3), depth


def test_the_step_goes_uphill() -> None:
    stack = randomised(CapsuleStack(layer(8, 3, penalty="l2", gamma=1e-3, weight=0.0)))
    capsules, targets = torch.randn(9, 1, 1, 8, 4), one_hot(torch.randint(3, (9,)), 3)
    before = objective(stack, capsules, targets)
    stack.after_step(stack.train()(Capsules(capsules))[1], targets)
    assert objective(stack, capsules, targets) > before


def test_l1_leaves_zero_alone_and_shrinks_the_rest() -> None:
    routing = DiscriminativeRouting(LayerShape(1, 3, 1, 2), penalty="l1", gamma=1.0, weight=0.01)
    routing.couplings.copy_(torch.tensor([0.0, 0.5, -0.5]).view(1, 3, 1))
    routing.after_step(torch.zeros(1, 1, 3, 1, 2), torch.zeros(1, 1, 1, 2))
    torch.testing.assert_close(routing.couplings.flatten(), torch.tensor([0.0, 0.48, -0.48]))


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_default_steps_move_the_couplings(penalty: str) -> None:
    """The ascent must not be inert: at a step size of 1e-5 the spread after these steps is half a percent."""
    torch.manual_seed(0)
    model = create_model(f"capsnet-{penalty}", size="laptop", filters=8, types=4, decoder="none")
    optimizer, images = torch.optim.Adam(model.parameters(), 2e-3), load_dataset("glyphs", "train")
    for step in range(25):
        batch = images.batch(torch.arange(32 * step, 32 * step + 32))
        output = model(batch.images)
        optimizer.zero_grad()
        margin_loss(output.scores, one_hot(batch.labels, 10)).backward()
        optimizer.step()
        model.after_step(output, batch.labels)
    couplings = model.capsules.layers[0].routing.couplings
    assert couplings.std() > 0.01 * couplings.mean()


def finalist(penalty: str) -> list[dict[str, Any]]:
    """The rows of the longer trainings in which a penalty moves the couplings most."""
    rows = [row for row in read_json(SEARCH)["rows"] if row["stage"] == "finalists" and row["penalty"] == penalty]
    most = max(row["reach"] for row in rows)
    return [row for row in rows if row["reach"] == most]


@pytest.mark.skipif(not SEARCH.is_file(), reason="only a clone has the results")
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_the_setting_of_the_search_moves_the_couplings_and_is_the_default(penalty: str) -> None:
    rows = finalist(penalty)
    assert len({row["seed"] for row in rows}) >= 2
    assert {row["data"] for row in rows} == {"mnist", "fashion-mnist"}
    for row in rows:
        assert row["couplings"]["deviation"] > 0.2 * row["couplings"]["mean"]
        assert row["commit"]
    routing = create_routing(f"discriminative-{penalty}", LayerShape(1, 6, 10, 4))
    assert routing.weight == rows[0]["lambda"]
    assert 50_000 * routing.gamma == pytest.approx(rows[0]["reach"], rel=0.1)


def test_couplings_are_saved_and_never_reached_by_the_optimizer() -> None:
    model = create_model("capsnet-l1", size="laptop")
    names = {name for name, _ in model.named_parameters()}
    (saved,) = [name for name in model.state_dict() if name.endswith("routing.couplings")]
    assert saved not in names
    output = model(torch.rand(4, 1, 28, 28))
    before = model.state_dict()[saved].clone()
    output.scores.sum().backward()
    torch.optim.Adam(model.parameters()).step()
    assert torch.equal(model.state_dict()[saved], before)
    model.after_step(output, torch.tensor([0, 1, 2, 3]))
    assert not torch.equal(model.state_dict()[saved], before)


def test_labels_never_reach_inference() -> None:
    """Outside training nothing is handed over, so there is nothing that labels could change."""
    model = create_model("capsnet-l2", size="laptop").eval()
    images, before = torch.rand(4, 1, 28, 28), copy.deepcopy(model.state_dict())
    output = model(images)
    assert output.votes is None
    model.after_step(output, torch.tensor([0, 1, 2, 3]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(model(images).scores, output.scores)


def test_the_hand_over_is_the_forward_pass_s_own_votes() -> None:
    model = create_model("capsnet-l2", size="laptop")
    calls = []
    model.capsules.layers[0].transform.register_forward_hook(lambda *_: calls.append(1))
    output = model(torch.rand(4, 1, 28, 28))
    model.after_step(output, torch.tensor([0, 1, 2, 3]))
    assert output.votes.shape == (4, 1, 288, 10, 16)
    assert not output.votes.requires_grad
    assert len(calls) == 1  # no second forward pass


def test_no_other_model_keeps_its_votes() -> None:
    assert create_model("capsnet", size="laptop")(torch.rand(2, 1, 28, 28)).votes is None


def test_never_a_product_of_children_with_children() -> None:
    """2,000 children would need a matrix of 4 million numbers per class and image."""
    stack = CapsuleStack(layer(2000, 3, penalty="l2"))
    largest = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            largest.extend(each.numel() for each in (result,) if isinstance(each, Tensor))
            return result

    with Watch():
        stack.after_step(torch.randn(2, 1, 2000, 3, 4), torch.eye(3)[:2])
    assert max(largest) <= 2 * 2000 * 3 * 4


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0.0, 1e-30, 1.0, 1e15, 1e30]), st.booleans(), st.sampled_from(["l1", "l2"]))
def test_couplings_stay_finite_whatever_the_votes(scale: float, equal: bool, penalty: str) -> None:
    stack = CapsuleStack(layer(6, 3, penalty=penalty, gamma=1.0))
    votes = scale * (torch.ones(2, 1, 6, 3, 4) if equal else torch.randn(2, 1, 6, 3, 4))
    for _ in range(3):
        stack.after_step(votes, torch.eye(3)[:2])
    assert stack.layers[0].routing.couplings.isfinite().all()


def test_wrong_settings_are_refused() -> None:
    shape = LayerShape(1, 6, 3, 4)
    with pytest.raises(TorchcapsError, match="did you mean 'discriminative-l"):
        create_routing("discriminative", shape)
    with pytest.raises(TorchcapsError, match=r"gamma and weight of at least 0, got -1 and 0\.001"):
        create_routing("discriminative-l1", shape, gamma=-1, weight=0.001)
    with pytest.raises(TorchcapsError, match="penalty 'l3' is unknown"):
        DiscriminativeRouting(shape, penalty="l3")
