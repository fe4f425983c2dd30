"""The base class of all models, their output, and ensembles."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import log_odds
from torchcaps.layers import Decoder, MeanImage


class Output(NamedTuple):
    """Output of a model.

    Shapes: ``scores`` (B, classes) in [0, 1]; ``logits`` (B, classes), unbounded, same order as the scores;
    ``pose`` (B, classes, D), one vector per class, or None for models without capsules; ``votes``, the votes that
    ``after_step`` needs, in training only and None for most models.
    """

    scores: Tensor
    logits: Tensor
    pose: Tensor | None = None
    votes: Tensor | None = None


class Model(nn.Module, ABC):
    """Base class of all models. It checks and preprocesses the input; a subclass implements ``classify``.

    Images are pixels in [0, 1]. Preprocessing is the model's own first layer, so that an attack's epsilon is in pixels.

    Images with NaN or infinite pixels raise an error, unless they are on another device than the CPU or a graph is
    being traced: see :func:`refuse_not_finite`. ``model(images, check_finite=False)`` skips the check.

    ``model(images, jitter=jitter)`` changes contrast and brightness after the preprocessing, by a factor and an offset
    for each image, (B, 2): see :meth:`torchcaps.data.Augmentation.jitter`.

    Args:
        image_shape: channels, height, width.
        classes: number of classes.
        preprocess: applied to the pixels first.
        decoder: reconstructs an image from the pose.
    """

    class_names: tuple[str, ...] = ()  # filled in when a trained model is loaded
    largest_pixel: float = 16.0  # larger pixels are refused: they are surely not in [0, 1], but in 0 to 255
    built_with: dict[str, Any] | None = None  # name, size and settings, if create_model built it

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        preprocess: nn.Module | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__()
        self.image_shape, self.classes = image_shape, classes
        self.preprocess = preprocess or nn.Identity()
        self.backbone: nn.Module = nn.Identity()
        self.decoder = decoder

    def check_images(self, images: Tensor, *, check_finite: bool = True) -> None:
        """Raise an error if the model cannot take these images."""
        if not images.is_floating_point():
            raise TorchcapsError(f"expected pixels in [0, 1] as floats, got {images.dtype}: use images.float() / 255")
        if images.ndim != 4 or tuple(images.shape[1:]) != self.image_shape:
            raise TorchcapsError(
                f"{type(self).__name__} was built for images {self.image_shape} (channels, height, width), "
                f"got a batch of shape {tuple(images.shape)}"
            )
        if check_finite:
            refuse_not_finite(images, largest=self.largest_pixel)

    def forward(self, images: Tensor, *, check_finite: bool = True, jitter: Tensor | None = None) -> Output:
        self.check_images(images, check_finite=check_finite)
        prepared = self.preprocess(images)
        if jitter is not None:
            factor, offset = jitter[:, :, None, None, None].unbind(1)  # (B, 1, 1, 1) each
            mean = prepared.mean((2, 3), keepdim=True)
            prepared = mean + factor * (prepared - mean) + offset
        return self.classify(self.backbone(prepared))

    def prepare(self, images: Tensor) -> None:
        """Fit the preprocessing to training images (N, C, H, W); called once before training."""
        if isinstance(self.preprocess, MeanImage):
            refuse_not_finite(images)
            self.preprocess.fit(images)

    @abstractmethod
    def classify(self, images: Tensor) -> Output:
        """Compute the output for preprocessed images (B, C, H, W), or for the feature maps of the backbone."""

    def reconstruct(self, output: Output, labels: Tensor | None = None, *, enlarge: bool = True) -> Tensor:
        """Reconstruct images from the poses of the given classes (B,), by default those with the highest scores.

        A model for large images draws smaller ones, see ``decoder.drawn_shape``, and enlarges them if ``enlarge``.
        """
        if self.decoder is None or output.pose is None:
            raise TorchcapsError(f"this {type(self).__name__} has no decoder, so it cannot reconstruct images")
        chosen = output.scores.argmax(1) if labels is None else labels
        drawn: Tensor = self.decoder(output.pose, chosen, enlarge=enlarge)
        return drawn

    def after_step(self, output: Output, labels: Tensor) -> None:
        """Update parts that learn outside backpropagation; the training loop calls it after each optimizer step."""


def refuse_not_finite(images: Tensor, *, largest: float = math.inf) -> None:
    """Raise an error if a pixel is NaN or infinite, or finite but above ``largest``.

    The check is skipped for tensors that are not on a CPU, because reading its result would wait for the device, and
    for tensors without values: under torch.compile, torch.export, torch.jit.trace, vmap and fake tensors.

    Shapes: images (B, C, H, W).
    """
    traced = torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._are_functorch_transforms_active()
    if traced or type(images) not in (Tensor, nn.Parameter) or images.device.type != "cpu":
        return
    if not images.numel():
        return
    low, high = map(float, images.detach().aminmax())  # both are NaN if a pixel is
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = (~images.isfinite().flatten(1).all(1)).nonzero()
        raise TorchcapsError(
            f"expected images with finite pixels, got NaN or infinity in {len(bad)} of {len(images)} images, the first "
            f"at index {int(bad[0])}: leave these images out or repair them with torch.nan_to_num"
        )
    if high > largest:
        raise TorchcapsError(f"expected pixels in [0, 1], got values of up to {high:g}: divide by 255")


def conv_output_size(size: int, *layers: tuple[int, int]) -> int:
    """Side of a feature map after convolutions (kernel, stride) without padding; an error if it would be empty.

    >>> conv_output_size(28, (9, 1), (9, 2))
    6
    """
    left = size
    for kernel, stride in layers:
        left = (left - kernel) // stride + 1 if left >= kernel else 0
    if left < 1:
        smallest = 1
        for kernel, stride in reversed(layers):
            smallest = (smallest - 1) * stride + kernel
        shape = " and ".join(f"{kernel}x{kernel}" for kernel, _ in layers)
        raise TorchcapsError(
            f"images of {size} pixels are too small for convolutions of {shape}: at least {smallest} pixels are needed"
        )
    return left


class Ensemble(Model):
    """An ensemble that averages the scores of models for the same images and classes (choi2019, table 1).

    >>> from torchcaps import create_model
    >>> pair = Ensemble([create_model("lenet", size="laptop"), create_model("convnet-avg", size="laptop")])
    >>> pair(torch.zeros(2, 1, 28, 28)).scores.shape
    torch.Size([2, 10])
    """

    def __init__(self, members: Sequence[Model]) -> None:
        if not members:
            raise TorchcapsError("an ensemble needs at least one model, got none")
        kinds = {(member.image_shape, member.classes) for member in members}
        if len(kinds) > 1:
            raise TorchcapsError(f"an ensemble needs models for the same images and classes, got {sorted(kinds)}")
        super().__init__(members[0].image_shape, members[0].classes)
        self.members = nn.ModuleList(members)

    def classify(self, images: Tensor) -> Output:
        scores = torch.stack([member(images).scores for member in self.members]).mean(0)
        return Output(scores, log_odds(scores))
