r"""Muon: orthogonalized momentum for the kernels of convolutions, Adam for all other parameters.

Jordan et al.: Muon, an optimizer for hidden layers in neural networks, 2024, https://kellerjordan.github.io/posts/muon/.
The size of an update, with which the learning rates of Adam fit, is that of Liu et al.: Muon is Scalable for LLM
Training, 2025, https://arxiv.org/abs/2502.16982.

.. math::
    M \leftarrow \mu M + (1 - \mu) G, \quad
    W \leftarrow W - \eta \cdot 0.2 \sqrt{\max(n, m)} \; \mathrm{orth}(\mu M + (1 - \mu) G)

G is the gradient of a kernel as a matrix, n output channels by m = input channels x height x width, and orth replaces
its singular values by about 1, so that rare directions are learned as fast as frequent ones. A kernel that holds
several convolutions, such as that of a grouped one, is one matrix for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn, optim

MOMENTUM = 0.95
UPDATE_SIZE = 0.2  # root mean square of an update, about that of Adam
# Coefficients of the Newton-Schulz iteration x -> a x + b x^3 + c x^5, by Jordan et al., and its number of steps.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
KERNEL_STATE = frozenset({"momentum_buffer"})
ADAM_STATE = frozenset({"step", "exp_avg", "exp_avg_sq"})


class Muon(optim.Adam):
    """Muon for kernels of convolutions, parameters with four axes; Adam for the others, with the same learning rate.

    Weight decay is decoupled for kernels, and a penalty in the gradient for the others, as in Adam.

    Args:
        parameters: all parameters of a model.
        lr: learning rate.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        kernels: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for parameter in parameters:
            (kernels if is_kernel(parameter) else others).append(parameter)
        groups = [{"params": group} for group in (kernels, others) if group]
        super().__init__(groups, lr=lr, fused=True)
        self.convolutions: dict[nn.Parameter, int] = {}

    def split_kernels(self, model: nn.Module) -> None:
        """Find the kernels of a model that hold several convolutions, one after the other by output channels."""
        for module in model.modules():
            count = module.groups if isinstance(module, nn.Conv2d) else getattr(module, "convolutions", 1)
            if count > 1:
                self.convolutions[module.weight] = count  # type: ignore[index]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        every = self.param_groups
        for group in every:
            if is_kernel(group["params"][0]):
                self._step_kernels(group)
        self.param_groups = [group for group in every if not is_kernel(group["params"][0])]
        try:
            super().step()
        finally:
            self.param_groups = every
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        optim.Optimizer.__setstate__(self, state)  # Adam's expects its own state for every parameter

    @torch.no_grad()
    def _step_kernels(self, group: dict[str, Any]) -> None:
        from torchcaps.train.checkpoint import distribute_like, full_tensor  # which imports the optimizers

        for kernel in group["params"]:
            if kernel.grad is None:
                continue
            if "momentum_buffer" not in self.state[kernel]:
                self.state[kernel]["momentum_buffer"] = torch.zeros_like(kernel)
            average = self.state[kernel]["momentum_buffer"].lerp_(kernel.grad, 1 - MOMENTUM)
            direction = full_tensor(kernel.grad.lerp(average, MOMENTUM)).flatten(1)  # (n, m)
            if (count := self.convolutions.get(kernel, 1)) > 1:
                direction = direction.unflatten(0, (count, -1))  # (count, n / count, m)
            size = group["lr"] * UPDATE_SIZE * max(direction.shape[-2:]) ** 0.5
            kernel.mul_(1 - group["lr"] * group["weight_decay"])
            update = orthogonalize(direction).reshape(kernel.shape)
            kernel.sub_(distribute_like(kernel, update), alpha=size)


def is_kernel(parameter: Tensor) -> bool:
    """Whether a parameter is the kernel of a convolution."""
    return parameter.ndim == 4


def state_of(parameter: Tensor) -> frozenset[str]:
    """Names of the tensors that Muon keeps for a parameter."""
    return KERNEL_STATE if is_kernel(parameter) else ADAM_STATE


def orthogonalize(matrix: Tensor) -> Tensor:
    """Replace the singular values of matrices by about 1: all but the smallest end up between 0.7 and 1.2.

    The iteration is a polynomial in the smaller Gram matrix times the matrix, so the steps multiply Gram matrices only.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> values = torch.linalg.svdvals(orthogonalize(torch.randn(8, 100)))
    >>> bool(values.min() > 0.6), bool(values.max() < 1.3)
    (True, True)
    """
    rows, columns = matrix.shape[-2:]
    wide = matrix if rows <= columns else matrix.mT
    wide = wide / (wide.flatten(-2).norm(dim=-1)[..., None, None] + 1e-12)
    gram = wide @ wide.mT
    identity = torch.eye(min(rows, columns), dtype=gram.dtype, device=gram.device)
    product = identity
    for number in range(STEPS):
        factor = A * identity + B * gram + C * (gram @ gram)
        product = factor @ product
        if number + 1 < STEPS:
            gram = factor @ gram @ factor  # they commute
    result: Tensor = product @ wide
    return result if rows <= columns else result.mT
