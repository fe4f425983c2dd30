"""What a run keeps of its images, so that it can be used without them.

``samples.safetensors`` holds some test images of a run that was trained on the user's own images.
``reconstruction.json`` holds quantiles of the reconstruction error on the validation images, with which an image can be
compared.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from torchcaps.data import ImageSet, TensorImages
from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path, write_json
from torchcaps.models import Model, Output
from torchcaps.progress import progress_bar
from torchcaps.train.objective import BATCH, crop_to_model
from torchcaps.train.records import Count, JsonRecord, read_record
from torchcaps.train.run_folder import RunFolder

SAMPLES, MOST_SAMPLES = 40, 1000
QUANTILES = 201
MOST_MEASURED = 1000  # validation images
UNUSUAL = 0.99  # an image whose error exceeds this share of the validation errors is flagged

Error = Annotated[float, Field(ge=0, le=1e6)]


def write_samples(run: RunFolder, images: ImageSet) -> None:
    """Keep the first test images in the run directory, as bytes."""
    batch = images.batch(torch.arange(min(SAMPLES, len(images))))
    pixels = batch.images.mul(255).round().to(torch.uint8)
    with atomic_path(run.output("samples.safetensors")) as temporary:
        save_file({"images": pixels.contiguous(), "labels": batch.labels.contiguous()}, temporary)


def read_samples(run: RunFolder) -> TensorImages | None:
    """Read the test images that a run keeps, perhaps an untrusted one; None if there are none."""
    path, config = run.path / "samples.safetensors", run.config()
    if not path.is_file():
        return None
    most = MOST_SAMPLES * (config.image_shape[0] * config.image_shape[1] * config.image_shape[2] + 100)
    try:
        found = load_file(path) if path.stat().st_size <= most else {}
        images, labels = found["images"], found["labels"]
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != config.image_shape or labels.dtype != torch.int64:
            raise KeyError
        return TensorImages(images, labels, config.class_names)
    except (SafetensorError, OSError, KeyError, IndexError, TorchcapsError) as error:
        raise TorchcapsError(f"{path} does not hold test images of this run: remove it") from error


class ReconstructionErrors(JsonRecord):
    """The contents of reconstruction.json."""

    images: Count
    quantiles: list[Error] = Field(min_length=QUANTILES, max_length=QUANTILES)


@dataclass(frozen=True)
class ErrorReference:
    """Reconstruction errors of validation images, to compare an image with.

    ``quantiles`` are those at 0, 1/200, ..., 1. The percentile of an error is the share of validation images with a
    smaller one: an image with a high percentile is unlike the images that the network was trained on.
    """

    images: int
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, errors: Tensor) -> ErrorReference:
        """Summarize the errors (N,) of the validation images."""
        shares = torch.linspace(0, 1, QUANTILES, dtype=torch.float64)
        return cls(len(errors), tuple(torch.quantile(errors.double(), shares).tolist()))

    def percentile(self, error: float) -> float:
        """Return the percentile of an error, 0 to 100.

        >>> reference = ErrorReference.of(torch.arange(101.0))
        >>> reference.percentile(50.2), reference.percentile(101.0)
        (50.0, 100.0)
        """
        return 100 * max(0, bisect_right(self.quantiles, error) - 1) / (QUANTILES - 1)

    def is_unusual(self, error: float) -> bool:
        """Whether an error is larger than those of 99 % of the validation images."""
        return error > self.quantiles[round(UNUSUAL * (QUANTILES - 1))]


def reconstruction_errors(model: Model, images: Tensor, output: Output) -> Tensor | None:
    """Return the mean squared error of the reconstructions from the winning capsules; None without a decoder.

    Shapes: images (B, C, H, W) to (B,).
    """
    if model.decoder is None or output.pose is None:
        return None
    return (model.reconstruct(output) - images).square().flatten(1).mean(1)


@torch.no_grad()
def write_error_reference(run: RunFolder, model: Model, validation: ImageSet) -> ErrorReference | None:
    """Measure the reconstruction errors of validation images and keep them.

    None if the model has no decoder, or if the images have several labels: one capsule cannot draw them.
    """
    count = min(len(validation), MOST_MEASURED)
    if model.decoder is None or validation.batch(torch.arange(1)).labels.ndim > 1:
        return None
    found = []
    with progress_bar("reconstruction errors", count) as advance:
        for indices in torch.arange(count).split(BATCH):
            pixels = crop_to_model(model, validation.batch(indices).images)
            errors = reconstruction_errors(model, pixels, model(pixels))
            if errors is None:
                return None
            found.append(errors)
            advance(len(indices))
    reference = ErrorReference.of(torch.cat(found))
    write_json(run.output("reconstruction.json"), {"images": reference.images, "quantiles": list(reference.quantiles)})
    return reference


def read_error_reference(run: RunFolder) -> ErrorReference | None:
    """Read the reconstruction errors that a run keeps; None if there are none."""
    path = run.path / "reconstruction.json"
    if not path.is_file():
        return None
    values = read_record(ReconstructionErrors, path)
    return ErrorReference(values["images"], tuple(sorted(values["quantiles"])))
