"""Models: one file per paper, plain baselines, and a registry of their records."""

from torchcaps.models import yang2021  # noqa: F401  (registers variants of CapsNet)
from torchcaps.models.backbone import Backbone, build_backbone
from torchcaps.models.base import Ensemble, Model, Output
from torchcaps.models.baselines import ConvNetAvg, ConvNetFC
from torchcaps.models.capsule_model import CapsuleModel
from torchcaps.models.chen2019 import ConvNetChen2019, GCapsNetConv, GCapsNetMulti, LeNet, g_capsnet_fc
from torchcaps.models.choi2019 import ARCapsNet
from torchcaps.models.gu2021 import ConvNetCR, ConvNetCRSF, ConvNetFCLargeKernel, ConvNetR
from torchcaps.models.hahn2019 import PlainHead, SRCapsNet
from torchcaps.models.hinton2018 import ConvNetHinton2018, MatrixCapsNet
from torchcaps.models.inference import FastInference
from torchcaps.models.mazzia2021 import EfficientCapsNet
from torchcaps.models.registry import ModelRecord, Recipe, create_model, list_models, models
from torchcaps.models.ribeiro2020 import VBCapsNet
from torchcaps.models.sabour2017 import CapsNet
from torchcaps.models.tsai2020 import InvertedCapsNet

__all__ = [
    "ARCapsNet",
    "Backbone",
    "CapsNet",
    "CapsuleModel",
    "ConvNetAvg",
    "ConvNetCR",
    "ConvNetCRSF",
    "ConvNetChen2019",
    "ConvNetFC",
    "ConvNetFCLargeKernel",
    "ConvNetHinton2018",
    "ConvNetR",
    "EfficientCapsNet",
    "Ensemble",
    "FastInference",
    "GCapsNetConv",
    "GCapsNetMulti",
    "InvertedCapsNet",
    "LeNet",
    "MatrixCapsNet",
    "Model",
    "ModelRecord",
    "Output",
    "PlainHead",
    "Recipe",
    "SRCapsNet",
    "VBCapsNet",
    "build_backbone",
    "create_model",
    "g_capsnet_fc",
    "list_models",
    "models",
]
