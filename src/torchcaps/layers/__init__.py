"""Layers: primary capsules, transforms, nonlinearities, capsule layers and decoders."""

from torchcaps.layers.capsule_layer import CapsuleLayer, CapsuleStack
from torchcaps.layers.conv_transform import ChannelConvTransform, ConvTransform
from torchcaps.layers.decoder import Decoder
from torchcaps.layers.nonlinearity import AffineTanh, NonlinearityRecord, nonlinearities
from torchcaps.layers.position_shared import CoordinateAddition, PositionSharedTransform
from torchcaps.layers.primary import Conv2d, MatrixPrimaryCapsules, MeanImage, PrimaryCapsules, Standardize
from torchcaps.layers.transform import (
    Capsules,
    DenseTransform,
    SharedTransform,
    Transform,
    TransformRecord,
    transforms,
)

__all__ = [
    "AffineTanh",
    "CapsuleLayer",
    "CapsuleStack",
    "Capsules",
    "ChannelConvTransform",
    "Conv2d",
    "ConvTransform",
    "CoordinateAddition",
    "Decoder",
    "DenseTransform",
    "MatrixPrimaryCapsules",
    "MeanImage",
    "NonlinearityRecord",
    "PositionSharedTransform",
    "PrimaryCapsules",
    "SharedTransform",
    "Standardize",
    "Transform",
    "TransformRecord",
    "nonlinearities",
    "transforms",
]
