"""Datasets, image sets and augmentations."""

from torchcaps.data import datasets as _datasets  # noqa: F401  (registers the datasets)
from torchcaps.data import turntable as _turntable  # noqa: F401
from torchcaps.data.base import Batch, ImageSet, Subset, TensorImages, split_off
from torchcaps.data.datasets.image_folder import ImageFolder, open_images
from torchcaps.data.io.download import File
from torchcaps.data.io.sources import DebianPackage, Mirror, NpmPackage, PyPIWheel, WebArchive
from torchcaps.data.registry import (
    DatasetRecord,
    DatasetStatus,
    dataset_status,
    datasets,
    download_dataset,
    load_dataset,
    verify_dataset,
)
from torchcaps.data.transforms import Augmentation, center_crop, thirteen_crops

__all__ = [
    "Augmentation",
    "Batch",
    "DatasetRecord",
    "DatasetStatus",
    "DebianPackage",
    "File",
    "ImageFolder",
    "ImageSet",
    "Mirror",
    "NpmPackage",
    "PyPIWheel",
    "Subset",
    "TensorImages",
    "WebArchive",
    "center_crop",
    "dataset_status",
    "datasets",
    "download_dataset",
    "load_dataset",
    "open_images",
    "split_off",
    "thirteen_crops",
    "verify_dataset",
]
