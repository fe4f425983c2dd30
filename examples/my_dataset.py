"""A dataset of your own in one file: torchcaps train capsnet --data stripes --plugin examples/my_dataset.py"""

import torch

from torchcaps.data import DatasetRecord, TensorImages, datasets

CLASSES = ("horizontal", "vertical", "diagonal")
SPLITS = {"train": 600, "test": 150}


def open_stripes(split: str) -> TensorImages:
    """Draw noisy stripes in three directions."""
    generator = torch.Generator().manual_seed(list(SPLITS).index(split))
    labels = torch.arange(SPLITS[split]) % len(CLASSES)
    rows, columns = torch.meshgrid(torch.arange(28), torch.arange(28), indexing="ij")
    phase = torch.stack([rows, columns, rows + columns])[labels]  # (N, 28, 28)
    phase = phase + torch.randint(8, (len(labels), 1, 1), generator=generator)
    noise = torch.rand(phase.shape, generator=generator)
    images = 0.8 * (phase % 8 < 4) + 0.2 * noise
    return TensorImages(images.unsqueeze(1), labels, CLASSES)


datasets.add(
    DatasetRecord(
        name="stripes",
        description="noisy stripes in three directions",
        shape=(1, 28, 28),
        class_names=CLASSES,
        splits=SPLITS,
        licence="MIT",
        citation="yours",
        open=open_stripes,
    )
)
