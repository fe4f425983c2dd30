"""Layers: primary capsules, transforms, nonlinearities, capsule layers and decoders."""

from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.capsule_stack import CapsuleStack, ConcurrentStack, build_stack
from torchcaps.layers.conv2d import Conv2d, Sequential
from torchcaps.layers.conv_transform import ChannelConvTransform, ConvTransform
from torchcaps.layers.decoder import Decoder
from torchcaps.layers.nonlinearity import AffineTanh, NonlinearityRecord, TypeBatchNorm, nonlinearities
from torchcaps.layers.position_shared import CoordinateAddition, PositionSharedTransform
from torchcaps.layers.primary import (
    DepthwisePrimaryCapsules,
    MatrixPrimaryCapsules,
    MeanImage,
    NormalizedPrimaryCapsules,
    PrimaryCapsules,
    Standardize,
    StridedStem,
)
from torchcaps.layers.resnet import BasicBlock, ResNet, feature_shape
from torchcaps.layers.transform import (
    Capsules,
    DenseTransform,
    NoVotes,
    SharedTransform,
    Transform,
    TransformRecord,
    transforms,
)

__all__ = [
    "AffineTanh",
    "BasicBlock",
    "CapsuleLayer",
    "CapsuleStack",
    "Capsules",
    "ChannelConvTransform",
    "ConcurrentStack",
    "Conv2d",
    "ConvTransform",
    "CoordinateAddition",
    "Decoder",
    "DenseTransform",
    "DepthwisePrimaryCapsules",
    "MatrixPrimaryCapsules",
    "MeanImage",
    "NoVotes",
    "NonlinearityRecord",
    "NormalizedPrimaryCapsules",
    "PositionSharedTransform",
    "PrimaryCapsules",
    "ResNet",
    "Sequential",
    "SharedTransform",
    "Standardize",
    "StridedStem",
    "Transform",
    "TransformRecord",
    "TypeBatchNorm",
    "build_stack",
    "feature_shape",
    "nonlinearities",
    "transforms",
]
