"""Input and output of the explainers, and the selection of the images that they show and measure on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.data import Batch, ImageSet, center_crop
from torchcaps.data.base import as_floats
from torchcaps.data.io.pictures import picture_form, read_picture
from torchcaps.data.preview import evenly_spaced
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEARCHED_IMAGES = 1000  # among which one image of each class is looked for
MAX_SHOWN = 10


@dataclass(frozen=True)
class Explanation:
    """Result of an explainer: the finding in one sentence, a caption, the data, and the figures by file name."""

    finding: str
    caption: str
    data: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class ShownImages:
    """Images (K, C, H, W) that figures show, with a name for each, and their classes if they are known."""

    images: Tensor
    names: list[str]
    labels: list[tuple[int, ...]] | None = None  # of each image


@dataclass(frozen=True)
class ExplainInput:
    """Input of an explainer: a model, images to show, images to measure on, and a second model with a decoder.

    ``paper`` is the paper of the model, whose perturbation range is used.
    """

    model: Model
    class_names: tuple[str, ...]
    shown: ShownImages
    sample: Batch
    other: Model | None = None
    paper: str = ""


def images_for_model(model: Model, images: ImageSet, indices: Tensor) -> Batch:
    """Return images of a set at the model's size; larger images are center-cropped."""
    if len(images.class_names) != model.classes:
        raise TorchcapsError(
            f"the model has {model.classes} classes but the dataset has {len(images.class_names)}: "
            "choose the dataset that it was trained on, or one with the same classes"
        )
    batch = images.batch(indices)
    channels, height, width = model.image_shape
    if batch.images.shape[1] != channels or batch.images.shape[2] < height or batch.images.shape[3] < width:
        raise TorchcapsError(
            f"the model expects images {model.image_shape} (channels, height, width), but the dataset has "
            f"{tuple(batch.images.shape[1:])}: choose a dataset with images of the expected size"
        )
    cropped = center_crop(batch.images, (height, width))
    return Batch(cropped, batch.labels)


def sample_images(model: Model, images: ImageSet, count: int) -> Batch:
    """Return evenly spaced images of a set, always the same ones."""
    return images_for_model(model, images, evenly_spaced(len(images), min(count, len(images))))


def select_images(model: Model, images: ImageSet, picture: str | None) -> ShownImages:
    """Select the images to show: an image file, an index into the set, or by default one image of each class.

    The largest centered square of a file is resized to the model's size, in gray or color as the model expects.
    """
    if picture is None:
        return one_per_class(model, images)
    path = Path(picture)
    if picture.isdecimal() and not path.exists():
        index = int(picture)
        if index >= len(images):
            raise TorchcapsError(f"there is no image {index}: the dataset has images 0 to {len(images) - 1}")
        batch = images_for_model(model, images, torch.tensor([index]))
        return ShownImages(batch.images, [f"image {index}"], label_tuples(batch.labels))
    return ShownImages(read_image(path, model.image_shape), [path.name])


def read_image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """Read an image file of any size and mode as a batch of one, (1, C, H, W) in [0, 1]."""
    size, grey = picture_form(shape)
    if not path.is_file():
        raise TorchcapsError(f"{path} is neither a file nor a number: give an image file, or an index into the images")
    read = read_picture(path, boundary=None, size=size, grey=grey)  # no boundary: the user named this file
    if isinstance(read, str):
        raise TorchcapsError(f"{read}. Use a PNG or JPEG image")
    return as_floats(read).unsqueeze(0)


def one_per_class(model: Model, images: ImageSet) -> ShownImages:
    """Return the first image of each of at most ten classes; for a set with several labels, the first ten images."""
    batch = sample_images(model, images, SEARCHED_IMAGES)
    if batch.labels.ndim > 1:
        names = ["+".join(images.class_names[label] for label in row) for row in batch.labels[:MAX_SHOWN].tolist()]
        return ShownImages(batch.images[:MAX_SHOWN], names, label_tuples(batch.labels[:MAX_SHOWN]))
    firsts = [
        int(torch.nonzero(batch.labels == label)[0]) for label in batch.labels.unique(sorted=True)[:MAX_SHOWN].tolist()
    ]
    labels = batch.labels[firsts]
    return ShownImages(batch.images[firsts], [images.class_names[int(label)] for label in labels], label_tuples(labels))


def label_tuples(labels: Tensor) -> list[tuple[int, ...]]:
    """Return the labels of each image, (B,) or (B, labels)."""
    return [tuple(row) for row in labels.view(len(labels), -1).tolist()]
