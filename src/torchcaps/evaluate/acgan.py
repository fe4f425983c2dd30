"""The two networks of an AC-GAN for digits: one draws a digit of a wanted class, the other judges what it is shown.

Chen, Crandall, Su: Generalized Capsule Networks with Trainable Routing Procedure, 2019, section 4.2, after Odena, Olah,
Shlens: Conditional Image Synthesis with Auxiliary Classifier GANs, 2017, https://arxiv.org/abs/1610.09585.

The paper gives the shapes of all maps, and neither kernels nor strides. From (3, 3) to (7, 7) a kernel of 5 at stride 1
leads; the two doublings have the same kernel at stride 2. The judge has kernels of 3, every other one at stride 2.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.data import ImageSet, Subset, TensorImages, load_dataset
from torchcaps.data.base import as_floats, chunks
from torchcaps.data.datasets.mnist import DIGITS
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.clean import first_images
from torchcaps.files import cache_folder, make_folder
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.train import evaluate_accuracy
from torchcaps.train.checkpoint import (
    TrainingProgress,
    all_finite,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from torchcaps.train.sampler import batch_indices, derived_seed, seed_step, steps_per_epoch

# MERGED Digits that nobody wrote: an AC-GAN is trained on MNIST, and what it draws after each epoch is
# MERGED Digits that a GAN draws, as a test: chen2019, Table 3.
CLASSES = 10
LATENT = 100
SLOPE = 0.2  # of the leaky ReLUs
DROPPED = 0.3


class Generator(nn.Module):
    """Latent vectors and classes to images.

    The class enters as a learned vector by which the latent one is multiplied, number by number: what goes into the
    fully connected layer has the paper's 100 numbers, and nothing can be drawn of a class without the latent vector.
    With ten of the numbers for the class alone, the others were soon ignored, and all drawings of a digit became one.

    Shapes: (B, 100) and (B,) to (B, 1, 28, 28) in (0, 1).
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_class = nn.Embedding(CLASSES, LATENT)
        self.layers = nn.Sequential(
            nn.Linear(LATENT, 384 * 3 * 3),
            nn.ReLU(),
            nn.Unflatten(1, (384, 3, 3)),
            nn.ConvTranspose2d(384, 192, 5),
            nn.ReLU(),
            nn.BatchNorm2d(192),
            nn.ConvTranspose2d(192, 96, 5, stride=2, padding=2, output_padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(96),
            nn.ConvTranspose2d(96, 1, 5, stride=2, padding=2, output_padding=1),
            nn.Sigmoid(),
        )

    def forward(self, latent: Tensor, labels: Tensor) -> Tensor:
        drawn: Tensor = self.layers(latent * self.of_class(labels))
        return drawn


class Discriminator(nn.Module):
    """Whether an image is real, and what it shows: (B, 1, 28, 28) to logits (B,) and (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise((1, 32, 64, 128, 256))):
            convolution = nn.Conv2d(before, after, 3, stride=1 if number % 2 else 2, padding=1)
            layers += [convolution, nn.LeakyReLU(SLOPE), nn.Dropout(DROPPED)]
        self.layers = nn.Sequential(*layers, nn.Flatten())  # (B, 256 * 7 * 7)
        self.real, self.shown = nn.Linear(256 * 7 * 7, 1), nn.Linear(256 * 7 * 7, CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.layers(2 * images - 1)  # around zero, as the first convolution likes it
        return self.real(seen).squeeze(1), self.shown(seen)


class ACGAN(nn.Module):
    """Both, so that they are saved and optimised together.

    They begin after Glorot, with biases of zero. A vector of a class is then small enough to be turned around within an
    epoch, and no bias drowns what it makes of the latent vector.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = Generator(), Discriminator()
        for name, value in self.named_parameters():
            if value.ndim > 1:
                nn.init.xavier_normal_(value)
            elif name.endswith("bias"):
                nn.init.zeros_(value)


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
        progress = load_checkpoint(last, gan, optimizer) if last.is_file() else TrainingProgress()
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
def generate(folder: Path, epoch: int, count: int = CLASSES * PER_DIGIT, seed: int = 0) -> TensorImages:
    """Digits as the generator drew them after an epoch, 0 to 9 and again: (count, 1, 28, 28)."""
    generator = Generator().eval()
    load_weights(epoch_file(folder, epoch), generator)
    labels = torch.arange(count) % CLASSES
    source = torch.Generator().manual_seed(derived_seed(seed, "latent", epoch))
    latent = 2 * torch.rand(count, LATENT, generator=source) - 1
    drawn = torch.cat([generator(latent[part], labels[part]) for part in chunks(count, AT_ONCE)])
    return TensorImages(drawn.mul(255).round().to(torch.uint8), labels, DIGITS)


def _training_images(settings: GanSettings) -> ImageSet:
    images = load_dataset(settings.data, "train")
    if images.shape != (1, 28, 28) or len(images.class_names) != CLASSES:
        raise TorchcapsError(
            f"the AC-GAN draws ten kinds of 28x28 grey images, which {settings.data} has not: use mnist"
        )
    return images if settings.train_images is None else Subset(images, torch.arange(settings.train_images))


def measure_acgan(
    model: Model, settings: GanSettings, *, images_used: int | None = None, epochs: int = EPOCHS
) -> dict[str, Any]:
    """Share of wrong answers on the drawings of each epoch; ``images_used``: None for 400 of each digit.

    ``variety`` is how much a pixel differs between drawings of one digit (0.15 in MNIST): a GAN that draws every digit
    in one way only makes a test of ten images.
    """
    train_acgan(settings.folder(), settings, epochs)
    count = min(images_used or CLASSES * PER_DIGIT, CLASSES * PER_DIGIT)
    errors, variety = {}, {}
    for epoch in range(1, epochs + 1):
        drawn = generate(settings.folder(), epoch, count)
        variety[str(epoch)] = _variety(drawn)
        shown = first_images(model, drawn, None)
        errors[str(epoch)] = 1 - evaluate_accuracy(model, shown, description=f"epoch {epoch}").accuracy
    seen = "all" if settings.train_images is None else f"{settings.train_images:,}"
    about = f"digits drawn by an AC-GAN after each of {epochs} epochs on {seen} images of {settings.data}"
    found: dict[str, Any] = {"name": "acgan", "about": about, "images": count, "settings": asdict(settings)}
    return found | {"error_by_epoch": errors, "variety_by_epoch": variety}


def _variety(drawn: TensorImages) -> float:
    """Standard deviation of a pixel among drawings of one digit, mean over pixels and digits."""
    pixels = as_floats(drawn.images)
    of_digit = [pixels[drawn.labels == digit].std(0, correction=0).mean() for digit in drawn.labels.unique()]
    return torch.stack(of_digit).mean().item()
