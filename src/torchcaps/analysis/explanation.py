"""Which images are looked at: a picture of the user's, one of the test set, or one for each class."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.data import Batch, ImageSet, center_crop
from torchcaps.data.base import as_floats
from torchcaps.data.io.pictures import picture_form, read_picture
from torchcaps.data.preview import spread
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

# MERGED What an explanation is made from, and what it gives.
SEARCHED_IMAGES = 1000  # images that are searched for one of every class
MAX_SHOWN = 10


@dataclass(frozen=True)
class ShownImages:
    """Images (K, C, H, W) that figures show, with a name for each."""

    images: Tensor
    names: list[str]


def images_for_model(model: Model, images: ImageSet, indices: Tensor) -> Batch:
    """Images of a set as the model sees them: of those that are larger than its own, the centre."""
    if len(images.class_names) != model.classes:
        raise TorchcapsError(
            f"the model knows {model.classes} classes and the images have {len(images.class_names)}: "
            "choose the dataset that it was trained on, or one with the same classes"
        )
    batch = images.batch(indices)
    channels, height, width = model.image_shape
    if batch.images.shape[1] != channels or batch.images.shape[2] < height or batch.images.shape[3] < width:
        raise TorchcapsError(
            f"the model was built for images {model.image_shape} (channels, height, width), and the dataset has "
            f"{tuple(batch.images.shape[1:])}: choose a dataset with images of that size"
        )
    seen = center_crop(batch.images, height) if batch.images.shape[2] > height else batch.images
    return Batch(seen, batch.labels)


def sample_images(model: Model, images: ImageSet, count: int) -> Batch:
    """Images from all over a set, the same ones every time."""
    return images_for_model(model, images, spread(len(images), min(count, len(images))))


def select_images(model: Model, images: ImageSet, picture: str | None) -> ShownImages:
    """The picture in a file, the image at an index of the set, or by default one image for each class.

    A file's largest middle square is scaled to the model's size, in grey or colour as the model wants it.
    """
    if picture is None:
        return one_per_class(model, images)
    path = Path(picture)
    if picture.isdecimal() and not path.exists():
        index = int(picture)
        if index >= len(images):
            raise TorchcapsError(f"there is no image {index}: the set has images 0 to {len(images) - 1}")
        return ShownImages(images_for_model(model, images, torch.tensor([index])).images, [f"image {index}"])
    return ShownImages(read_image(path, model.image_shape), [path.name])


def read_image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """A picture of any size and mode as a batch of one, (1, C, H, W) in [0, 1]."""
    size, grey = picture_form(shape)
    if not path.is_file():
        raise TorchcapsError(f"{path} is no file and no number: give a picture, or an index into the test images")
    read = read_picture(path, boundary=None, size=size, grey=grey)  # the user named this very file
    if isinstance(read, str):
        raise TorchcapsError(f"{read}. Use a PNG or JPEG picture")
    return as_floats(read).unsqueeze(0)


def one_per_class(model: Model, images: ImageSet) -> ShownImages:
    """The first image of each class, of ten classes at most; of sets with several labels, the first images."""
    batch = sample_images(model, images, SEARCHED_IMAGES)
    if batch.labels.ndim > 1:
        names = ["+".join(images.class_names[label] for label in row) for row in batch.labels[:MAX_SHOWN].tolist()]
        return ShownImages(batch.images[:MAX_SHOWN], names)
    firsts = [
        int(torch.nonzero(batch.labels == label)[0]) for label in batch.labels.unique(sorted=True)[:MAX_SHOWN].tolist()
    ]
    return ShownImages(batch.images[firsts], [images.class_names[int(label)] for label in batch.labels[firsts]])


@dataclass(frozen=True)
class ExplainInput:
    """What is explained: a model, images to show, images to measure on, and maybe a model with another decoder."""

    model: Model
    class_names: tuple[str, ...]
    shown: ShownImages
    sample: Batch
    other: Model | None = None


@dataclass(frozen=True)
class Explanation:
    """What was found in one sentence, what one sees in the figures, the data, and the figures by file name."""

    finding: str
    sees: str
    data: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)
