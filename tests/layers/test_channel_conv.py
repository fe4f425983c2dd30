from __future__ import annotations

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import AffineTanh, Capsules, ChannelConvTransform


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (3, 1, 1), (5, 1, 0), (2, 1, 0)])
def test_each_pair_of_types_has_a_convolution_of_its_own(kernel: int, stride: int, padding: int) -> None:
    """Window by window and pair by pair. A kernel of 5 covers the grid, and takes another way through the code."""
    transform = ChannelConvTransform((5, 5), 3, 2, 4, 6, kernel=kernel, stride=stride, padding=padding)
    torch.nn.init.normal_(transform.bias)
    pose = torch.randn(2, 5, 5, 3, 4)
    votes = transform(Capsules(pose))
    height, width = transform.grid
    assert votes.shape == (2, height * width, 3, 2, 6)
    padded = torch.zeros(2, 5 + 2 * padding, 5 + 2 * padding, 3, 4)
    padded[:, padding : padding + 5, padding : padding + 5] = pose
    kernels = transform.weight.view(3, 2, 6, 4, kernel, kernel)  # child type, parent type, out, in, row, column
    biases = transform.bias.view(3, 2, 6)
    for row in range(height):
        for column in range(width):
            top, left = row * stride, column * stride
            window = padded[:, top : top + kernel, left : left + kernel]  # (B, K, K, N, D)
            for child in range(3):
                for parent in range(2):
                    expected = biases[child, parent].expand(2, 6).clone()
                    for y in range(kernel):
                        for x in range(kernel):
                            expected += window[:, y, x, child] @ kernels[child, parent, :, :, y, x].T
                    got = votes[:, row * width + column, child, parent]
                    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_gradient_in_double_precision() -> None:
    for kernel in (2, 3):
        transform = ChannelConvTransform((3, 3), 2, 2, 2, 3, kernel=kernel).double()
        pose = torch.randn(2, 3, 3, 2, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda pose: transform(Capsules(pose)), pose)  # noqa: B023


def test_a_window_larger_than_the_grid_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="5x5 convolution with padding 0 does not fit 4x4 capsules"):
        ChannelConvTransform((4, 4), 3, 2, 4, 6, kernel=5)


def test_capsule_activation_is_an_affine_map_per_type_and_tanh() -> None:
    activation, pose = AffineTanh(3, 4), torch.randn(2, 5, 3, 4)
    torch.nn.init.normal_(activation.bias)
    result = activation(pose)
    for kind in range(3):
        expected = torch.tanh(pose[:, :, kind] @ activation.weight[kind] + activation.bias[kind])
        torch.testing.assert_close(result[:, :, kind], expected)
    assert activation(torch.randn(2, 6, 7, 3, 4)).shape == (2, 6, 7, 3, 4)
