"""Muon against a slow definition by singular values, and its division of parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Capsules, ChannelConvTransform
from torchcaps.train.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint
from torchcaps.train.config import resolve
from torchcaps.train.muon import Muon, orthogonalize
from torchcaps.train.optimizers import make_optimizer, optimizers


def polynomial_by_singular_values(matrix: Tensor) -> Tensor:
    """Five steps of x -> a x + b x^3 + c x^5 on each singular value, in double precision."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return (left * values) @ right


@pytest.mark.parametrize("shape", [(8, 100), (100, 8), (5, 5), (1, 7), (64, 5184)])
def test_orthogonalize_is_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * torch.logspace(0, -2, shape[1])
    torch.testing.assert_close(orthogonalize(matrix).double(), polynomial_by_singular_values(matrix), atol=1e-4, rtol=0)


def test_most_singular_values_become_about_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(32, 400)))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    assert not orthogonalize(torch.zeros(3, 4)).any()


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 5)
        self.linear = nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.linear(self.conv(images).relu().mean((2, 3)))
        return found


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> list[dict[str, Tensor]]:
    """Gradients of each step."""
    generator, seen = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(8, 3, 9, 9, generator=generator)).square().sum().backward()
        seen.append({name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None})
        optimizer.step()
    return seen


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_kernels_follow_the_equation_and_the_others_adam(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = Small().to(memory_format=layout)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = Muon(model.parameters(), lr=0.02)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1
    gradients = train(model, optimizer)
    kernel, average = start["conv.weight"].double(), torch.zeros(6, 75, dtype=torch.float64)
    for step in gradients:
        gradient = step["conv.weight"].double().reshape(6, 75)
        average = 0.95 * average + 0.05 * gradient
        direction = polynomial_by_singular_values(0.95 * average + 0.05 * gradient)
        kernel = kernel * (1 - 0.02 * 0.1) - 0.02 * 0.2 * 75**0.5 * direction.reshape(6, 3, 5, 5)
    torch.testing.assert_close(model.conv.weight.detach().double(), kernel, atol=1e-5, rtol=0)
    others = [name for name in start if name != "conv.weight"]
    copies = {name: nn.Parameter(start[name]) for name in others}
    adam = torch.optim.Adam(copies.values(), lr=0.02, weight_decay=0.1)
    for step in gradients:
        for name in others:
            copies[name].grad = step[name]
        adam.step()
    found = dict(model.named_parameters())
    for name in others:
        torch.testing.assert_close(found[name].detach(), copies[name].detach(), atol=1e-7, rtol=1e-6)


def test_a_checkpoint_holds_one_average_of_a_kernel_and_two_of_other_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Small()
    optimizer = optimizers.get("muon").build(model.parameters(), 0.02)
    train(model, optimizer)
    save_checkpoint(tmp_path / "x.safetensors", model, optimizer, TrainingProgress())
    copy = Small()
    again = Muon(copy.parameters(), lr=0.02)
    load_checkpoint(tmp_path / "x.safetensors", copy, again)
    assert [set(again.state[value]) for value in (copy.conv.weight, copy.linear.weight)] == [
        {"momentum_buffer"},
        {"step", "exp_avg", "exp_avg_sq"},
    ]
    train(model, optimizer)
    train(copy, again)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), copy.parameters(), strict=True))
    with pytest.raises(TorchcapsError, match="does not fit this optimizer"):
        load_checkpoint(tmp_path / "x.safetensors", copy, torch.optim.Adam(copy.parameters()))


class Separate(nn.Module):
    """A grouped convolution of 3 groups, and a transform with a convolution for each of 3 x 2 pairs of types."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 12, 5, padding=2, groups=3)
        self.votes = ChannelConvTransform((9, 9), 3, 2, 4, 5, kernel=3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(torch.cat([images, images.square()], 1))
        found: Tensor = self.votes(Capsules(maps.unflatten(1, (3, 4)).permute(0, 3, 4, 1, 2))).mean((0, 1))
        return found


@pytest.mark.parametrize(("name", "count"), [("conv.weight", 3), ("votes.weight", 6)])
def test_each_convolution_in_a_kernel_is_a_matrix_of_its_own(name: str, count: int) -> None:
    torch.manual_seed(0)
    model = Separate()
    kernel = model.get_parameter(name).detach().double()
    optimizer = make_optimizer(model, resolve(model="ar-capsnet", optimizer="muon", learning_rate=0.02))
    gradients = train(model, optimizer)
    shape = kernel.flatten(1).unflatten(0, (count, -1)).shape
    average = torch.zeros(shape, dtype=torch.float64)
    for step in gradients:
        gradient = step[name].double().reshape(shape)
        average = 0.95 * average + 0.05 * gradient
        each = [polynomial_by_singular_values(part) for part in 0.95 * average + 0.05 * gradient]
        kernel = kernel - 0.02 * 0.2 * max(shape[1:]) ** 0.5 * torch.stack(each).reshape(kernel.shape)
    torch.testing.assert_close(model.get_parameter(name).detach().double(), kernel, atol=1e-5, rtol=0)
