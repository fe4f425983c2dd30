"""Fashion-MNIST: 70,000 images of clothes in MNIST's format, 28x28 grayscale. https://arxiv.org/abs/1708.07747"""

from __future__ import annotations

from torchcaps.data.base import TensorImages
from torchcaps.data.datasets.mnist import COUNTS, files_of, read_split
from torchcaps.data.io.download import File, fetch_files
from torchcaps.data.io.sources import DebianPackage, Mirror
from torchcaps.data.registry import DatasetRecord, datasets

CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
FILES = (
    File(
        "train-images-idx3-ubyte.gz",
        47_040_016,
        "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        60_008,
        "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        7_840_016,
        "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        10_008,
        "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
SOURCES = (
    Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
    Mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"),
    DebianPackage("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
)


def open_fashion(split: str) -> TensorImages:
    """Open one split of Fashion-MNIST."""
    folder = fetch_files("fashion-mnist", FILES, SOURCES, needed=files_of(split, FILES))
    return read_split(split, folder, CLOTHES)


datasets.add(
    DatasetRecord(
        name="fashion-mnist",
        description="pictures of clothes",
        shape=(1, 28, 28),
        class_names=CLOTHES,
        splits=COUNTS,
        licence="MIT",
        citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for benchmarking, 2017",
        open=open_fashion,
        files=FILES,
        sources=SOURCES,
        augmentation="shift=2",
    )
)
