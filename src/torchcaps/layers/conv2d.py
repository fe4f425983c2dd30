"""``torch.nn`` layers with the same weights and results that use the fastest of several forms on a CPU."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.kernels.autotune import Case, form_is_chosen, worth_measuring
from torchcaps.kernels.batch_norm import batch_norm_relu, has_hooks
from torchcaps.kernels.convolution import spectral_convolution
from torchcaps.kernels.dispatch import kernel_choice, runs_fused
from torchcaps.kernels.winograd import winograd_convolution


class Conv2d(nn.Conv2d):
    """``torch.nn.Conv2d`` with the same weights and the same results, faster for many layers.

    Wide kernels can use a Fourier transform, and 3x3 kernels with stride 1 and a padding of 0 or 1 Winograd's
    algorithm. The form is autotuned once for each layer and batch size, see ``torchcaps doctor``;
    ``TORCHCAPS_KERNELS=plain`` always uses PyTorch's.

    >>> Conv2d(1, 4, 9)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 4, 20, 20])
    """

    def forward(self, images: Tensor) -> Tensor:
        form = self._form(images)
        if form == "winograd":
            return winograd_convolution(images, self.weight, self.bias, self._zeros() or 0)
        if form == "spectral":
            if zeros := self._zeros():
                images = F.pad(images, [zeros] * 4)
            maps = spectral_convolution(images, self.weight, self.stride[0])
            return maps if self.bias is None else maps + self.bias.view(-1, 1, 1)
        return super().forward(images)

    def _zeros(self) -> int | None:
        """Zeros that are added on each side of the images; None if that is not the same number of zeros everywhere."""
        kernel, padding = self.kernel_size[0], self.padding
        if isinstance(padding, str):
            padding = (0, 0) if padding == "valid" else (kernel // 2, kernel // 2) if kernel % 2 else (0, 1)
        if padding[0] != padding[1] or (padding[0] and self.padding_mode != "zeros"):
            return None
        return int(padding[0])

    def _form(self, images: Tensor) -> str:
        asked = kernel_choice()
        if not runs_fused(images, self.weight):
            return "pytorch"
        small, zeros = self.kernel_size == (3, 3), self._zeros()
        square = self.kernel_size[0] == self.kernel_size[1] and self.stride[0] == self.stride[1]
        usual = square and self.groups == 1 and self.dilation == (1, 1) and images.ndim == 4
        if zeros is None or not usual or (small and zeros > 1):
            return "pytorch"
        size = images.shape[2] + (0 if small else 2 * zeros)  # the Fourier form gets padded images
        if images.shape[2] != images.shape[3] or size < self.kernel_size[0]:
            return "pytorch"
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        attacked = torch.is_grad_enabled() and images.requires_grad
        case = Case(
            # Rounded down to a power of two.
            batch=1 << (max(1, len(images)).bit_length() - 1),
            inputs=self.in_channels,
            outputs=self.out_channels,
            size=size,
            kernel=self.kernel_size[0],
            stride=self.stride[0],
            mode="training" if learns else "attack" if attacked else "inference",
            threads=torch.get_num_threads(),
            form="winograd" if small else "spectral",
            padding=zeros if small else 0,
        )
        return case.form if worth_measuring(case) and (asked == "fast" or form_is_chosen(case)) else "pytorch"


class Sequential(nn.Sequential):
    """``torch.nn.Sequential`` with the same weights and results, faster on a CPU where a ReLU follows a BatchNorm2d.

    Layers with hooks are called one by one.

    >>> Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU())(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 16, 6, 6])
    """

    def forward(self, input: Tensor) -> Tensor:
        layers, values = [*self, nn.Identity()], input
        done = False  # whether the layer before computed this ReLU
        for layer, following in pairwise(layers):
            together = isinstance(layer, nn.BatchNorm2d) and type(following) is nn.ReLU
            together = together and not (has_hooks(layer) or has_hooks(following))
            if together:
                values = batch_norm_relu(values, layer)
            elif not done:
                values = layer(values)
            done = together
        return values
