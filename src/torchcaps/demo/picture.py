"""From what a request holds to an image as a model takes it; nothing of it is trusted."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.base import as_floats
from torchcaps.data.io.pictures import UnreadableError, decode_square
from torchcaps.data.transforms import place, rotation, scaling, shearing, warp
from torchcaps.demo.schemas import AffineTransform, EncodedImages, ImageRequest
from torchcaps.errors import TorchcapsError

# Fewer than datasets may have: only what browsers show, and none that starts a program or refers to other files.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MOST_PIXELS = 16_000_000  # a picture of a telephone's camera; about a quarter of a second to decode


def read_request_image(question: ImageRequest, shape: tuple[int, int, int]) -> Tensor:
    """The image of a request, changed as it asks: (C, H, W) in [0, 1], of the given shape."""
    channels, side, _ = shape
    given = question.image
    image = decode_picture(given, side) if isinstance(given, str) else read_planes(given)
    if len(image) not in (1, channels):
        image = image.mean(0, keepdim=True)  # colours for a model that sees grey
    image = image.unsqueeze(0)
    if image.shape[2] != side:
        margin = (side - image.shape[2]) // 2  # below zero where the middle is cut out
        image = place(image, torch.tensor([[margin, margin]]), (side, side))
    image = image.expand(1, channels, side, side)
    if question.transform is not None:
        image = change(image, question.transform)
    return image.squeeze(0).clamp(0, 1)


def read_planes(numbers: list[list[float]] | list[list[list[float]]]) -> Tensor:
    """Nested lists as (C, H, W), or an error if they are not square."""
    try:
        array = np.asarray(numbers, dtype=np.float32)
    except ValueError as error:
        raise TorchcapsError("the rows of an image must all have the same length") from error
    if array.ndim == 2:
        array = array[None]
    if array.shape[1] != array.shape[2]:
        raise TorchcapsError(f"an image must be square, got {array.shape[1]} rows of {array.shape[2]} pixels")
    return torch.from_numpy(array)


def decode_picture(text: str, side: int) -> Tensor:
    """The largest middle square of a picture file in base64, scaled: (3, side, side) in [0, 1]."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TorchcapsError("an image given as text must be a picture file in base64") from error
    try:
        found = decode_square(content, size=side, grey=False, formats=FORMATS, most_pixels=MOST_PIXELS)
    except UnreadableError as error:  # what the decoder says is of no use to who sent it
        raise TorchcapsError("the picture cannot be read: send a whole PNG, JPEG, GIF, WebP or BMP file") from error
    except TorchcapsError as error:
        raise TorchcapsError(f"the picture {error}") from error
    return as_floats(found)


def change(images: Tensor, asked: AffineTransform) -> Tensor:
    """Scale, shear, rotate and shift, in one resampling: (B, C, H, W) to the same."""

    def of(value: float) -> Tensor:
        return torch.tensor([value], dtype=torch.float32)

    matrix = rotation(of(asked.rotate)) @ shearing(of(asked.shear), of(0.0)) @ scaling(of(asked.scale), of(asked.scale))
    return warp(images, matrix, torch.stack([of(asked.shift_x), of(asked.shift_y)], dim=1))


def encode_images(images: Tensor) -> EncodedImages:
    """Images in [0, 1] of any leading shape, as bytes."""
    content = images.detach().clamp(0, 1).mul(255).round().to(torch.uint8).contiguous().numpy().tobytes()
    return EncodedImages(shape=list(images.shape), data=base64.b64encode(content).decode())
