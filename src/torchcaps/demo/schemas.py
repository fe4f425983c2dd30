"""What the service is asked and what it answers: sizes and ranges are checked here, before anything is computed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_SIDE = 128  # of an image that is sent as numbers
LONGEST_PICTURE = 3_000_000  # characters of a picture file in base64

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$", description="One of GET /api/models.")]
Pixel = Annotated[float, Field(ge=0, le=1)]
# The first wrong value is enough: an error for each of 49,152 pixels takes a second to put into words.
Row = Annotated[list[Pixel], Field(min_length=8, max_length=LONGEST_SIDE, fail_fast=True)]
Plane = Annotated[list[Row], Field(min_length=8, max_length=LONGEST_SIDE, fail_fast=True)]
File = Annotated[str, Field(min_length=1, max_length=LONGEST_PICTURE)]
Coordinate = Annotated[float, Field(ge=-1000, le=1000)]


class Message(BaseModel):
    """Base of all: what is not known is a mistake, and a number is finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class AffineTransform(Message):
    """An affine change about the image's centre, in the order scale, shear, rotate, shift."""

    rotate: float = Field(default=0, ge=-180, le=180, description="Degrees, counter-clockwise.")
    shear: float = Field(default=0, ge=-60, le=60, description="Degrees, along x.")
    scale: float = Field(default=1, ge=0.25, le=4)
    shift_x: float = Field(default=0, ge=-64, le=64, description="Pixels to the right.")
    shift_y: float = Field(default=0, ge=-64, le=64, description="Pixels downward.")


class ImageRequest(Message):
    """An image for a model.

    An image of another size than the model's is put in the middle of a black one, or its middle is cut out. A picture
    file is brought to the model's size first.
    """

    model: ModelName
    image: File | Plane | Annotated[list[Plane], Field(min_length=1, max_length=3, fail_fast=True)] = Field(
        union_mode="left_to_right",
        description="Rows of pixels in [0, 1], square; or one to three such planes; or a PNG, JPEG, GIF, WebP or BMP "
        "file in base64.",
    )
    transform: AffineTransform | None = None


class LabeledRequest(ImageRequest):
    """An image, and the class that is asked about."""

    label: int | None = Field(default=None, ge=0, lt=10_000, description="Number of a class; none: the model's answer.")


class AttackRequest(LabeledRequest):
    """An image to be changed until the answer is wrong."""

    attack: Literal["fgsm", "pgd"] = "fgsm"
    epsilon: float = Field(default=0.1, ge=0, le=1, description="The most by which a pixel in [0, 1] may change.")


class Sweep(Message):
    """Every number of the capsule moved alone, from -reach to +reach."""

    reach: float = Field(gt=0, le=100)
    steps: int = Field(default=11, ge=2, le=21)


class ReconstructRequest(Message):
    """A pose to draw."""

    model: ModelName
    pose: list[Annotated[list[Coordinate], Field(min_length=1, max_length=256, fail_fast=True)]] = Field(
        min_length=1, max_length=1000, fail_fast=True, description="A row for each class, as /api/predict gives it."
    )
    label: int = Field(ge=0, lt=10_000, description="The class to draw.")
    sweep: Sweep | None = None


class EncodedImages(Message):
    """Images as bytes: pixel 0 to 255, the last axis fastest, in base64."""

    shape: list[int] = Field(description="Ends with channels, height, width.")
    data: str


class PredictResponse(Message):
    """A model's answer."""

    model: str
    label: int
    scores: list[float] = Field(description="One for each class, in [0, 1].")
    pose: list[list[float]] | None = Field(description="A row for each class; none without capsules.")
    image: EncodedImages = Field(description="What the model saw.")


class ReconstructResponse(Message):
    """What the decoder draws: one image, or with a sweep an image for each number of the capsule and each step."""

    model: str
    images: EncodedImages


class VoteDistances(Message):
    """How far votes lie from the class's mean after each iteration of EM routing, counted by their assignment."""

    edges: list[float]
    weights: list[list[float]] = Field(description="For each iteration, for each bin.")
    mean: list[float] = Field(description="For each iteration, over all classes.")


class RoutingResponse(Message):
    """Which places voted for a class."""

    model: str
    label: int
    scores: list[float]
    image: EncodedImages
    maps: list[list[list[float]]] = Field(description="For each iteration, rows of places: what each gives the class.")
    frame: list[float] = Field(description="Left, right, bottom, top of the map, in pixels of the image.")
    share: list[float] | None = Field(
        description="For each iteration, the share of all that is present that comes to the class; none where "
        "capsules do not share themselves out."
    )
    distances: VoteDistances | None = Field(description="For EM routing.")


class AttackResponse(Message):
    """An image changed by an attack, and the answer to it."""

    model: str
    label: int = Field(description="The answer that was attacked.")
    before: list[float]
    after: list[float]
    fooled: bool
    image: EncodedImages
    noise: EncodedImages = Field(description="The change: 128 is none, 0 and 255 are the largest of this image.")
    largest: float = Field(description="The most by which a pixel changed.")
    queries: int = Field(description="How often the image went through the model.")


class ModelInfo(Message):
    """A model that is served."""

    name: str
    model: str
    size: str
    data: str
    image_shape: list[int]
    class_names: list[str]
    labels_per_image: int
    parameters: int
    test_accuracy: float | None = Field(description="Share of right answers on the whole test split, where known.")
    pose_size: int | None = Field(description="Numbers in a class capsule; none without capsules.")
    routes: bool = Field(description="Has capsule layers to look into.")
    draws: bool = Field(description="Has a decoder.")
    reach: float = Field(description="How far its paper moves a number of a capsule.")


class SampleImages(Message):
    """Test images of a model's dataset."""

    images: EncodedImages
    labels: list[list[int]]


class ErrorResponse(Message):
    """Why there is no answer, in one sentence."""

    detail: str
