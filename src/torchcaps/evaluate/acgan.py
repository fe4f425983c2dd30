"""Digits that nobody wrote: an AC-GAN is trained on MNIST, and what it draws after each epoch is what is tested.

chen2019, section 4.2 and Table 3: 400 images of each digit after each of the first five epochs, when they can be read
but are not yet MNIST's. The GAN is trained once and kept: an epoch that is there is not trained again, and one that
was interrupted begins anew, so that the outcome is the same to the bit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data import ImageSet, MemoryImages, Subset, load_dataset
from torchcaps.data.base import pieces
from torchcaps.data.mnist import DIGITS
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.acgan_nets import ACGAN, CLASSES, LATENT, Generator
from torchcaps.files import cache_folder, make_folder
from torchcaps.progress import progress_bar
from torchcaps.train.checkpoint import (
    Progress,
    all_finite,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from torchcaps.train.order import batch_indices, derived_seed, seed_step, steps_per_epoch

EPOCHS = 5
PER_DIGIT = 400
REAL = 0.95  # what the judge shall say of real images: certainty would leave the generator without a gradient
AT_ONCE = 250
NETWORKS = 2  # one more with every change of the two networks or of a step: what was trained before is another GAN


@dataclass(frozen=True)
class GanSettings:
    """What decides how the GAN comes out. Learning rate and beta1 are the paper's; it gives no batch size.

    ``train_images``: the first so many; None: all of the training split.
    """

    data: str = "mnist"
    train_images: int | None = None
    batch: int = 100
    learning_rate: float = 2e-4
    beta1: float = 0.5
    seed: int = 0

    def folder(self) -> Path:
        """Where a GAN with these settings is kept."""
        decisive = {**asdict(self), "networks": NETWORKS}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        return cache_folder() / "acgan" / f"{self.data}-{digest}-seed{self.seed}"


# In size "laptop" an epoch has as many steps as in size "paper", with a fifth of the images in each: minutes on a core.
SIZES = {"paper": GanSettings(), "laptop": GanSettings(train_images=12_000, batch=20)}


def epoch_file(folder: Path, epoch: int) -> Path:
    """The generator as it was after an epoch."""
    return folder / f"epoch-{epoch}.safetensors"


def train_acgan(folder: Path, settings: GanSettings, epochs: int = EPOCHS) -> None:
    """Train as many epochs as are missing in the folder; the generator is kept after each.

    Of several processes one trains, and the others wait for it.
    """
    if epoch_file(folder, epochs).is_file():
        return
    images = _training_images(settings)
    per_epoch = steps_per_epoch(len(images), settings.batch)
    with FileLock(make_folder(folder) / ".lock"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        gan, last = ACGAN(), folder / "last.safetensors"
        optimizer = torch.optim.Adam(gan.parameters(), settings.learning_rate, betas=(settings.beta1, 0.999))
        progress = load_checkpoint(last, gan, optimizer) if last.is_file() else Progress()
        for epoch in range(progress.step // per_epoch + 1, epochs + 1):
            with progress_bar(f"AC-GAN, epoch {epoch} of {epochs}", per_epoch) as advance:
                for step in range(progress.step, epoch * per_epoch):
                    seed_step(settings.seed, step, 0)
                    batch = images.batch(batch_indices(len(images), settings.batch, settings.seed, step))
                    train_step(gan, optimizer, batch.images, batch.labels)
                    advance(1)
            if not all_finite(gan):
                raise TorchcapsError(f"the AC-GAN is no longer finite after epoch {epoch}: choose another seed")
            progress.step = epoch * per_epoch
            # The checkpoint comes last: where it is not written, the epoch is trained again and gives the same.
            save_weights(epoch_file(folder, epoch), gan.generator)
            save_checkpoint(last, gan, optimizer, progress)


def train_step(gan: ACGAN, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """One step of the judge, then one of the generator, on as many drawings as there are images.

    The judge learns classes from real images only: from drawings it would learn what the generator takes for a digit.
    """
    gan.train()
    wanted = torch.randint(CLASSES, labels.shape)
    drawn = gan.generator(2 * torch.rand(len(labels), LATENT) - 1, wanted)
    real, shown = gan.discriminator(torch.cat([images, drawn.detach()]))
    truth = torch.cat([torch.full((len(images),), REAL), torch.zeros(len(drawn))])
    judged = F.binary_cross_entropy_with_logits(real, truth) + F.cross_entropy(shown[: len(labels)], labels)
    optimizer.zero_grad()
    judged.backward()
    optimizer.step()  # of the judge alone: what has no gradient stays

    optimizer.zero_grad()
    gan.discriminator.requires_grad_(False)
    real, shown = gan.discriminator(drawn)
    deceived = F.binary_cross_entropy_with_logits(real, torch.full_like(real, REAL)) + F.cross_entropy(shown, wanted)
    deceived.backward()
    gan.discriminator.requires_grad_(True)
    optimizer.step()  # of the generator alone


@torch.no_grad()
def generate(folder: Path, epoch: int, count: int = CLASSES * PER_DIGIT, seed: int = 0) -> MemoryImages:
    """Digits as the generator drew them after an epoch, 0 to 9 and again: (count, 1, 28, 28)."""
    generator = Generator().eval()
    load_weights(epoch_file(folder, epoch), generator)
    labels = torch.arange(count) % CLASSES
    source = torch.Generator().manual_seed(derived_seed(seed, "latent", epoch))
    latent = 2 * torch.rand(count, LATENT, generator=source) - 1
    drawn = torch.cat([generator(latent[part], labels[part]) for part in pieces(count, AT_ONCE)])
    return MemoryImages(drawn.mul(255).round().to(torch.uint8), labels, DIGITS)


def _training_images(settings: GanSettings) -> ImageSet:
    images = load_dataset(settings.data, "train")
    if images.shape != (1, 28, 28) or len(images.class_names) != CLASSES:
        raise TorchcapsError(
            f"the AC-GAN draws ten kinds of 28x28 grey images, which {settings.data} has not: use mnist"
        )
    return images if settings.train_images is None else Subset(images, torch.arange(settings.train_images))
