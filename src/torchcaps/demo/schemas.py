"""Requests and responses of the service. Sizes and ranges are checked here, before anything is computed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_SIDE = 128  # of an image sent as numbers
MAX_FILE_LENGTH = 3_000_000  # characters of a base64-encoded image file

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
MODEL = Field(default=None, description="One of GET /api/models; optional if there is only one.")
Pixel = Annotated[float, Field(ge=0, le=1)]
# Stop at the first invalid value: formatting an error for each of 49,152 pixels takes a second.
Row = Annotated[list[Pixel], Field(min_length=8, max_length=LONGEST_SIDE, fail_fast=True)]
Channel = Annotated[list[Row], Field(min_length=8, max_length=LONGEST_SIDE, fail_fast=True)]
File = Annotated[str, Field(min_length=1, max_length=MAX_FILE_LENGTH)]
Coordinate = Annotated[float, Field(ge=-1000, le=1000)]


class Message(BaseModel):
    """Base class: unknown fields and non-finite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class AffineTransform(Message):
    """An affine transform about the image center, in the order scale, shear, rotate, shift."""

    rotate: float = Field(default=0, ge=-180, le=180, description="Degrees, counter-clockwise.")
    shear: float = Field(default=0, ge=-60, le=60, description="Degrees, along x.")
    scale: float = Field(default=1, ge=0.25, le=4)
    shift_x: float = Field(default=0, ge=-64, le=64, description="Pixels to the right.")
    shift_y: float = Field(default=0, ge=-64, le=64, description="Pixels downward.")


class ImageRequest(Message):
    """An image for a model.

    An image of a different size than the model's is padded with black or center-cropped. An image file is resized.
    """

    model: ModelName | None = MODEL
    image: File | Channel | Annotated[list[Channel], Field(min_length=1, max_length=3, fail_fast=True)] = Field(
        union_mode="left_to_right",
        description="Square rows of pixels in [0, 1]; or one to three such channels; or a base64-encoded PNG, JPEG, "
        "GIF, WebP or BMP file.",
    )
    transform: AffineTransform | None = None


class PredictRequest(ImageRequest):
    """An image to classify, and what the response should contain beside the prediction."""

    include: list[Literal["scores", "pose", "image"]] = Field(
        default=[],
        max_length=3,
        description="'scores': the score of each class; 'pose': the class capsules, for /api/reconstruct; 'image': the "
        "input of the model.",
    )


class LabeledRequest(ImageRequest):
    """An image and a class."""

    label: int | None = Field(
        default=None, ge=0, lt=10_000, description="Index of a class; null for the predicted class."
    )


class AttackRequest(LabeledRequest):
    """An image to attack."""

    attack: Literal["fgsm", "pgd"] = "fgsm"
    epsilon: float = Field(default=0.1, ge=0, le=1, description="Maximum change of a pixel in [0, 1].")


class Sweep(Message):
    """Perturb every dimension of the capsule in turn, from -reach to +reach."""

    reach: float = Field(gt=0, le=100)
    steps: int = Field(default=11, ge=2, le=21)


class ReconstructRequest(Message):
    """A pose to reconstruct."""

    model: ModelName | None = MODEL
    pose: list[Annotated[list[Coordinate], Field(min_length=1, max_length=256, fail_fast=True)]] = Field(
        min_length=1, max_length=1000, fail_fast=True, description="A row per class, as returned by /api/predict."
    )
    label: int = Field(ge=0, lt=10_000, description="The class to reconstruct.")
    sweep: Sweep | None = None


class EncodedImages(Message):
    """Images as base64-encoded bytes: pixels from 0 to 255, in row-major order."""

    shape: list[int] = Field(description="The last three are channels, height, width.")
    data: str


class PredictResponse(Message):
    """A prediction, as 'torchcaps predict' prints it. What ``include`` does not name is left out."""

    model: str
    label: int = Field(description="Index of the predicted class.")
    class_name: str = Field(description="Name of the predicted class.")
    probability: float = Field(description="Probability of the predicted class.")
    probabilities: dict[str, float] = Field(description="Probability of each class: the softmax of the logits.")
    reconstruction_percentile: float | None = Field(
        default=None,
        description="Percent of the validation images whose reconstruction has a smaller error; null if unknown.",
    )
    unusual: bool | None = Field(
        default=None, description="Whether the image is unlike those that the network was trained on."
    )
    scores: list[float] | None = Field(
        default=None, description="One per class, in [0, 1]: the lengths of the class capsules."
    )
    pose: list[list[float]] | None = Field(
        default=None, description="A row per class; null for a model without capsules."
    )
    image: EncodedImages | None = Field(default=None, description="The input of the model.")


class ReconstructResponse(Message):
    """Reconstructions: one image, or with a sweep an image for each dimension of the capsule and each step."""

    model: str
    images: EncodedImages


class VoteDistances(Message):
    """Histogram of the distances between votes and the mean of the class per EM iteration, weighted by assignment."""

    edges: list[float]
    weights: list[list[float]] = Field(description="Per iteration and bin.")
    mean: list[float] = Field(description="Per iteration, over all classes.")


class RoutingResponse(Message):
    """Vote maps of a class."""

    model: str
    label: int
    scores: list[float]
    image: EncodedImages
    maps: list[list[list[float]]] = Field(
        description="Per iteration, the contribution of each position to the class, in rows."
    )
    frame: list[float] = Field(description="Left, right, bottom, top of the map, in pixels of the image.")
    share: list[float] | None = Field(
        description="Per iteration, the share of the total presence that reaches the class; null if couplings are not "
        "normalized over the parents."
    )
    even_map: list[list[float]] | None = Field(
        description="The map if every capsule shared itself evenly among its parents; null like 'share'."
    )
    even_share: float | None = Field(description="The share if every capsule shared itself evenly; null like 'share'.")
    distances: VoteDistances | None = Field(description="Only for EM routing.")


class AttackResponse(Message):
    """An attacked image and its prediction."""

    model: str
    label: int = Field(description="The class that the attack tries to change.")
    before: list[float]
    after: list[float]
    fooled: bool
    image: EncodedImages
    noise: EncodedImages = Field(description="The perturbation: 128 is zero, 0 and 255 are the largest of this image.")
    largest: float = Field(description="Largest change of a pixel.")
    queries: int = Field(description="Number of forward passes.")


class ModelInfo(Message):
    """A model of the service."""

    name: str
    model: str
    size: str
    data: str
    image_shape: list[int]
    class_names: list[str]
    labels_per_image: int
    parameters: int
    test_accuracy: float | None = Field(description="Accuracy on the whole test set, if known.")
    pose_size: int | None = Field(description="Dimensions of a class capsule; null for a model without capsules.")
    routes: bool = Field(description="Has capsule layers.")
    draws: bool = Field(description="Has a decoder.")
    reach: float = Field(description="Range over which its paper perturbs a dimension.")
    samples: bool = Field(description="Whether GET /api/samples returns test images of its dataset.")
    runtime: Literal["pytorch", "onnxruntime"] = Field(description="What computes predictions of single images.")


class SampleImages(Message):
    """Test images of a model's dataset."""

    images: EncodedImages
    labels: list[list[int]]


class ErrorResponse(Message):
    """An error, in one sentence."""

    detail: str
