"""What the learning trials change that is no setting: the start of a network, its class layer, the optimizer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn, optim

from torchcaps.layers import Capsules
from torchcaps.layers.nonlinearity import TypeBatchNorm
from torchcaps.models.hinton2018 import MatrixCapsNet
from torchcaps.train.optimizers import OptimizerRecord, optimizers

Change = Callable[[MatrixCapsNet], None]


def register(name: str, kind: type[optim.Optimizer], **settings: Any) -> dict[str, str]:
    """Register an optimizer for a trial; return the setting that chooses it."""
    if name not in optimizers:
        build = partial(kind, **settings)
        state = optimizers.get("adam").state
        optimizers.add(OptimizerRecord(name, "trial", kind, lambda parameters, rate: build(parameters, lr=rate), state))
    return {"optimizer": name}


def scale_primary_poses(factor: float) -> Change:
    """Scale the poses of a new network's primary capsules."""

    def change(model: MatrixCapsNet) -> None:
        conv, count = model.primary.conv, model.primary.types * model.primary.size
        with torch.no_grad():
            conv.weight[:count] *= factor
            conv.bias[:count] *= factor

    return change


def shift_primary_activations(logit: float) -> Change:
    """Add to the logits of a new network's primary capsules."""

    def change(model: MatrixCapsNet) -> None:
        with torch.no_grad():
            model.primary.conv.bias[model.primary.types * model.primary.size :] += logit

    return change


def scale_convolution(factor: float) -> Change:
    """Scale the first convolution; the primary capsules compensate for it."""

    def change(model: MatrixCapsNet) -> None:
        with torch.no_grad():
            model.features[0].weight *= factor
            model.features[0].bias *= factor
            model.primary.conv.weight /= factor

    return change


def start_poses_at_identity(factor: float) -> Change:
    """Let the biases of a new network's primary poses be the identity matrix times a factor."""

    def change(model: MatrixCapsNet) -> None:
        with torch.no_grad():
            biases = model.primary.conv.bias[: model.primary.types * model.primary.size].view(-1, 4, 4)
            biases.copy_(factor * torch.eye(4).expand_as(biases))

    return change


def start_as_rotations(spread: float) -> Change:
    """Start all matrices of a parent type near a random orthogonal one of its own, so that parent types differ."""

    def change(model: MatrixCapsNet) -> None:
        for weight in (each for each in model.capsules.parameters() if each.ndim == 3):  # (I, 4, J * 4)
            parents = weight.shape[2] // 4
            turns = torch.linalg.qr(torch.randn(parents, 4, 4))[0].transpose(0, 1)  # (4, J, 4)
            noise = spread * torch.randn(len(weight), 4, parents, 4)
            with torch.no_grad():
                weight.copy_((turns + noise).view_as(weight))

    return change


def start_filters_as_cosines(gain: float) -> Change:
    """Start the first convolution with cosines of rising frequency, each with both signs."""

    def change(model: MatrixCapsNet) -> None:
        conv = model.features[0]
        side = conv.kernel_size[0]
        places = torch.arange(side) + 0.5
        waves = torch.stack([(math.pi * places * number / side).cos() for number in range(side)])
        waves = waves / waves.norm(dim=1, keepdim=True)
        pairs = sorted(itertools.product(range(side), repeat=2), key=lambda pair: pair[0] ** 2 + pair[1] ** 2)
        chosen = pairs[: conv.out_channels // 2]
        filters = torch.stack([torch.outer(waves[row], waves[column]) for row, column in chosen])
        filters *= gain * torch.tensor([(1 + row**2 + column**2) ** 0.25 for row, column in chosen]).view(-1, 1, 1)
        with torch.no_grad():
            conv.weight.copy_(torch.cat([filters, -filters]).unsqueeze(1).expand_as(conv.weight))
            conv.bias.zero_()

    return change


def normalize_features(factor: float) -> Change:
    """Batch normalization of the first convolution's maps, without parameters, times a factor."""

    def change(model: MatrixCapsNet) -> None:
        model.features.append(nn.BatchNorm2d(model.features[0].out_channels, affine=False))
        with torch.no_grad():
            model.primary.conv.weight *= factor

    return change


def normalize_by_batch(model: MatrixCapsNet) -> None:
    """Batch normalization of the poses of each type in both convolutional capsule layers, without parameters."""
    for layer in list(model.capsules)[:2]:
        layer.nonlinearity = TypeBatchNorm(layer.routing.shape.parents)


def normalize_each_pose(*, primary: bool) -> Change:
    """Divide each pose of both convolutional layers, and of the primary capsules if asked, by its root mean square."""

    def normalize(pose: torch.Tensor) -> torch.Tensor:
        return pose * (pose.square().mean(-1, keepdim=True) + 0.01).rsqrt()  # poses below 0.1 stay small

    def normalize_primary(module: nn.Module, inputs: Any, capsules: Capsules) -> Capsules:
        return capsules._replace(pose=normalize(capsules.pose))

    def change(model: MatrixCapsNet) -> None:
        for layer in list(model.capsules)[:2]:
            layer.nonlinearity = normalize
        if primary:
            model.primary.register_forward_hook(normalize_primary)

    return change


class ActivationBatchNorm(nn.Module):
    """Batch normalization of the log-odds of the activations of each capsule type, as a hook of a layer."""

    def __init__(self, types: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(types, affine=False)

    def forward(self, module: nn.Module, inputs: Any, capsules: Capsules) -> Capsules:
        assert capsules.activation is not None
        odds = torch.logit(capsules.activation, eps=1e-6)  # (B, H, W, N)
        return capsules._replace(activation=self.norm(odds.flatten(0, 2)).view_as(odds).sigmoid())


def normalize_activations(model: MatrixCapsNet) -> None:
    """Normalize each pose, and the activations of the primary and both convolutional capsule layers by batch."""
    normalize_each_pose(primary=True)(model)
    convolutional = list(model.capsules)[:2]
    counts = [model.primary.types, *(layer.routing.shape.parents for layer in convolutional)]
    for layer, types in zip([model.primary, *convolutional], counts, strict=True):
        layer.activation_norm = ActivationBatchNorm(types)  # a module of the model, so that eval() reaches it
        layer.register_forward_hook(layer.activation_norm)


def drop_primary_capsules(share: float, *, types: bool = False) -> Change:
    """Set the activations of a random share of the primary capsules, or of whole types, to zero in training."""

    def drop(module: nn.Module, inputs: Any, capsules: Capsules) -> Capsules | None:
        if not module.training or capsules.activation is None:
            return None
        activation = capsules.activation  # (B, H, W, N)
        shape = (len(activation), 1, 1, activation.shape[3]) if types else activation.shape
        return capsules._replace(activation=activation * (torch.rand(shape) >= share))

    def change(model: MatrixCapsNet) -> None:
        model.primary.register_forward_hook(drop)

    return change


def scale_class_lambda(factor: float) -> Change:
    """Scale the inverse temperature of the class layer."""

    def change(model: MatrixCapsNet) -> None:
        routing = list(model.capsules)[-1].routing
        routing.temperatures = tuple(factor * each for each in routing.temperatures)

    return change


def widen_class_logits(factor: float, lowest: float) -> Change:
    """Scale the class layer's lambda, and move beta_a so that a class without votes has this logit."""

    def change(model: MatrixCapsNet) -> None:
        scale_class_lambda(factor)(model)
        routing = list(model.capsules)[-1].routing
        with torch.no_grad():
            routing.beta_a.fill_(lowest / routing.temperatures[-1])

    return change


def adam(beta1: float, beta2: float) -> dict[str, str]:
    """Adam with other betas."""
    name = f"adam-{beta1}-{beta2}"
    return register(name, type(name, (optim.Adam,), {}), betas=(beta1, beta2), fused=True)


class AveragingAdam(optim.Adam):
    """Adam that replaces the weights by their exponential moving average at the last step."""

    decay: float
    steps: int

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        found = super().step(closure)
        weights = [each for group in self.param_groups for each in group["params"]]
        self.done = getattr(self, "done", 0) + 1
        if self.done == 1:
            self.averages = [each.clone() for each in weights]
        torch._foreach_lerp_(self.averages, weights, 1 - min(self.decay, (1 + self.done) / (10 + self.done)))
        if self.done == self.steps:
            torch._foreach_copy_(weights, self.averages)
        return found


def averaged(decay: float, steps: int) -> dict[str, str]:
    """Adam with averaged weights, for a training of this many steps."""
    name = f"adam-averaged-{decay}"
    return register(name, type(name, (AveragingAdam,), {"decay": decay, "steps": steps}), fused=True)


class AdamByRank(optim.Adam):
    """Adam whose learning rate has a factor for convolutions, one for transforms, and one for vectors."""

    factors: dict[int, float]

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        groups: dict[int, list[nn.Parameter]] = {}
        for each in parameters:
            groups.setdefault(each.ndim, []).append(each)
        super().__init__([{"params": group, "rank": rank} for rank, group in groups.items()], lr=lr, fused=True)

    def step(self, closure: Any = None) -> Any:
        rates = [group["lr"] for group in self.param_groups]
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate * self.factors[group["rank"]]
        found = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return found


def rates(convolutions: float = 1.0, transforms: float = 1.0, vectors: float = 1.0) -> dict[str, str]:
    """Adam with learning rates by rank; both convolutions have rank 4, the transforms rank 3."""
    name = f"adam-{convolutions}-{transforms}-{vectors}"
    factors = {4: convolutions, 3: transforms, 1: vectors}
    return register(name, type(name, (AdamByRank,), {"factors": factors}))
