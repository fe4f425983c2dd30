"""Layers: primary capsules, transforms, the capsule layer that joins them with a routing, decoders."""

from torchcaps.layers.affine_tanh import AffineTanh
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.capsules import Capsules
from torchcaps.layers.channel_conv import ChannelConvTransform
from torchcaps.layers.conv_transform import ConvTransform
from torchcaps.layers.convolution import Conv2d
from torchcaps.layers.coordinates import CoordinateAddition
from torchcaps.layers.decoder import Decoder
from torchcaps.layers.matrix_primary import MatrixPrimary
from torchcaps.layers.position_shared import PositionSharedTransform
from torchcaps.layers.preprocess import MeanImage, Standardize
from torchcaps.layers.primary import VectorPrimary
from torchcaps.layers.shared import SharedTransform
from torchcaps.layers.stack import CapsuleStack
from torchcaps.layers.transforms import DenseTransform, Transform

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
    "MatrixPrimary",
    "MeanImage",
    "PositionSharedTransform",
    "SharedTransform",
    "Standardize",
    "Transform",
    "VectorPrimary",
]
