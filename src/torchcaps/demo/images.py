"""Convert the image of a request to a model input, and images to a response. Nothing in a request is trusted."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.base import as_floats
from torchcaps.data.io.pictures import UnreadableError, decode_picture
from torchcaps.data.transforms import place, rotation, scaling, shearing, warp
from torchcaps.demo.schemas import AffineTransform, EncodedImages, ImageRequest
from torchcaps.errors import TorchcapsError

# Only formats that browsers show; none that runs a program or refers to other files.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MAX_PIXELS = 16_000_000  # a phone photo; takes about a quarter of a second to decode


def read_request_image(request: ImageRequest, shape: tuple[int, int, int]) -> Tensor:
    """Return the image of a request with its transform applied: (C, H, W) in [0, 1], of the given shape."""
    channels, height, width = shape
    given = request.image
    image = decode_image(given, (height, width)) if isinstance(given, str) else read_channels(given)
    rows, columns = image.shape[1:]
    if rows != columns and (rows, columns) != (height, width):
        raise TorchcapsError(f"an image must be square, or {height}x{width}, got {rows} rows of {columns} pixels")
    if len(image) not in (1, channels):
        image = image.mean(0, keepdim=True)  # color image, gray model
    image = image.unsqueeze(0)
    if (rows, columns) != (height, width):  # margins are negative if the image is cropped
        image = place(image, torch.tensor([[(height - rows) // 2, (width - columns) // 2]]), (height, width))
    image = image.expand(1, channels, height, width)
    if request.transform is not None:
        image = apply_transform(image, request.transform)
    return image.squeeze(0).clamp(0, 1)


def read_channels(numbers: list[list[float]] | list[list[list[float]]]) -> Tensor:
    """Convert nested lists to (C, H, W)."""
    try:
        array = np.asarray(numbers, dtype=np.float32)
    except ValueError as error:
        raise TorchcapsError("the rows of an image must all have the same length") from error
    if array.ndim == 2:
        array = array[None]
    return torch.from_numpy(array)


def decode_image(text: str, size: tuple[int, int]) -> Tensor:
    """Decode a base64-encoded image file and resize its center to rows and columns: (3, H, W) in [0, 1]."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TorchcapsError("an image given as a string must be a base64-encoded image file") from error
    try:
        found = decode_picture(content, size=size, grey=False, formats=FORMATS, most_pixels=MAX_PIXELS)
    except UnreadableError as error:  # the message of the decoder does not help the client
        raise TorchcapsError("the image cannot be read: send a complete PNG, JPEG, GIF, WebP or BMP file") from error
    except TorchcapsError as error:
        raise TorchcapsError(f"the image {error}") from error
    return as_floats(found)


def apply_transform(images: Tensor, transform: AffineTransform) -> Tensor:
    """Scale, shear, rotate and shift images (B, C, H, W) with a single resampling."""

    def of(value: float) -> Tensor:
        return torch.tensor([value], dtype=torch.float32)

    matrix = (
        rotation(of(transform.rotate))
        @ shearing(of(transform.shear), of(0.0))
        @ scaling(of(transform.scale), of(transform.scale))
    )
    return warp(images, matrix, torch.stack([of(transform.shift_x), of(transform.shift_y)], dim=1))


def encode_images(images: Tensor) -> EncodedImages:
    """Encode images (..., C, H, W) in [0, 1] as base64."""
    content = images.detach().clamp(0, 1).mul(255).round().to(torch.uint8).contiguous().numpy().tobytes()
    return EncodedImages(shape=list(images.shape), data=base64.b64encode(content).decode())
