"""A test on generated digits: an AC-GAN is trained on MNIST, and models classify its images after each epoch.

Chen, Wang, Zhao, Crandall: Generalized Capsule Networks with Trainable Routing Procedure, 2019, section 4.2, table 3;
Odena, Olah, Shlens: Conditional Image Synthesis with Auxiliary Classifier GANs, 2017, https://arxiv.org/abs/1610.09585.

The paper gives the shapes of all feature maps but no kernels or strides. A kernel of 5 with stride 1 leads from (3, 3)
to (7, 7); the two upsampling layers have the same kernel with stride 2. The discriminator has kernels of 3, every other
one with stride 2.
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

CLASSES = 10
LATENT = 100
SLOPE = 0.2  # negative slope of the leaky ReLUs
DROPOUT = 0.3


class Generator(nn.Module):
    """Generates images from latent vectors and classes.

    The latent vector is multiplied elementwise by a learned embedding of the class, so that the fully connected layer
    has the paper's 100 inputs and cannot ignore the latent vector. When ten inputs encoded the class instead, the
    generator ignored the others and generated the same image for each digit.

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
        images: Tensor = self.layers(latent * self.of_class(labels))
        return images


class Discriminator(nn.Module):
    """Maps images (B, 1, 28, 28) to logits of being real (B,) and of the classes (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise((1, 32, 64, 128, 256))):
            convolution = nn.Conv2d(before, after, 3, stride=1 if number % 2 else 2, padding=1)
            layers += [convolution, nn.LeakyReLU(SLOPE), nn.Dropout(DROPOUT)]
        self.layers = nn.Sequential(*layers, nn.Flatten())  # (B, 256 * 7 * 7)
        self.real, self.shown = nn.Linear(256 * 7 * 7, 1), nn.Linear(256 * 7 * 7, CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layers(2 * images - 1)  # centered at zero
        return self.real(features).squeeze(1), self.shown(features)


class ACGAN(nn.Module):
    """Generator and discriminator in one module, so that they are saved and optimized together.

    Weights have the Glorot initialization and biases are zero. The class embeddings are then small enough to change
    sign within an epoch, and no bias outweighs the latent vector.
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
REAL = 0.95  # target for real images: a target of 1 would leave the generator without a gradient
BATCH = 250
NETWORKS = 2  # incremented with every change of the networks or the training step, so that cached GANs are not reused


@dataclass(frozen=True)
class GanSettings:
    """Settings of the GAN. Learning rate and beta1 are the paper's; it gives no batch size.

    ``train_images`` is the number of training images, None for all.
    """

    data: str = "mnist"
    train_images: int | None = None
    batch: int = 100
    learning_rate: float = 2e-4
    beta1: float = 0.5
    seed: int = 0

    def folder(self) -> Path:
        """Return the cache folder of a GAN with these settings."""
        decisive = {**asdict(self), "networks": NETWORKS}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        return cache_folder() / "acgan" / f"{self.data}-{digest}-seed{self.seed}"


# An epoch of "laptop" has as many steps as one of "paper", with a fifth of the batch size: minutes on one core.
SIZES = {"paper": GanSettings(), "laptop": GanSettings(train_images=12_000, batch=20)}


def epoch_file(folder: Path, epoch: int) -> Path:
    """Return the file with the generator's weights after an epoch."""
    return folder / f"epoch-{epoch}.safetensors"


def train_acgan(folder: Path, settings: GanSettings, epochs: int = EPOCHS) -> None:
    """Train the epochs that are missing in the folder and save the generator after each.

    If several processes call this, one trains and the others wait.
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
                raise TorchcapsError(
                    f"the AC-GAN has weights that are not finite after epoch {epoch}: try another seed"
                )
            progress.step = epoch * per_epoch
            # The checkpoint is written last: without it, the epoch is trained again with the same result.
            save_weights(epoch_file(folder, epoch), gan.generator)
            save_checkpoint(last, gan, optimizer, progress)


def train_step(gan: ACGAN, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """Train the discriminator for one step, then the generator, on as many generated images as real ones.

    The discriminator learns classes from real images only.
    """
    gan.train()
    targets = torch.randint(CLASSES, labels.shape)
    generated = gan.generator(2 * torch.rand(len(labels), LATENT) - 1, targets)
    real, shown = gan.discriminator(torch.cat([images, generated.detach()]))
    truth = torch.cat([torch.full((len(images),), REAL), torch.zeros(len(generated))])
    loss = F.binary_cross_entropy_with_logits(real, truth) + F.cross_entropy(shown[: len(labels)], labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # updates the discriminator only: the generator has no gradient

    optimizer.zero_grad()
    gan.discriminator.requires_grad_(False)
    real, shown = gan.discriminator(generated)
    loss = F.binary_cross_entropy_with_logits(real, torch.full_like(real, REAL)) + F.cross_entropy(shown, targets)
    loss.backward()
    gan.discriminator.requires_grad_(True)
    optimizer.step()  # updates the generator only


@torch.no_grad()
def generate(folder: Path, epoch: int, count: int = CLASSES * PER_DIGIT, seed: int = 0) -> TensorImages:
    """Generate digits with the generator of an epoch, with labels 0 to 9 in turn: (count, 1, 28, 28)."""
    generator = Generator().eval()
    load_weights(epoch_file(folder, epoch), generator)
    labels = torch.arange(count) % CLASSES
    source = torch.Generator().manual_seed(derived_seed(seed, "latent", epoch))
    latent = 2 * torch.rand(count, LATENT, generator=source) - 1
    generated = torch.cat([generator(latent[part], labels[part]) for part in chunks(count, BATCH)])
    return TensorImages(generated.mul(255).round().to(torch.uint8), labels, DIGITS)


def _training_images(settings: GanSettings) -> ImageSet:
    images = load_dataset(settings.data, "train")
    if images.shape != (1, 28, 28) or len(images.class_names) != CLASSES:
        raise TorchcapsError(
            f"the AC-GAN needs 28x28 grayscale images of ten classes, which {settings.data} does not have: use mnist"
        )
    return images if settings.train_images is None else Subset(images, torch.arange(settings.train_images))


def measure_acgan(
    model: Model, settings: GanSettings, *, images_used: int | None = None, epochs: int = EPOCHS
) -> dict[str, Any]:
    """Measure the error on the generated digits of each epoch; ``images_used``: None for 400 of each digit.

    ``variety_by_epoch`` is the standard deviation of a pixel between generated images of one digit (0.15 in MNIST). A
    low value means that the GAN generates few different images.
    """
    train_acgan(settings.folder(), settings, epochs)
    count = min(images_used or CLASSES * PER_DIGIT, CLASSES * PER_DIGIT)
    errors, variety = {}, {}
    for epoch in range(1, epochs + 1):
        generated = generate(settings.folder(), epoch, count)
        variety[str(epoch)] = _variety(generated)
        shown = first_images(model, generated, None)
        errors[str(epoch)] = 1 - evaluate_accuracy(model, shown, description=f"epoch {epoch}").accuracy
    seen = "all" if settings.train_images is None else f"{settings.train_images:,}"
    about = f"digits drawn by an AC-GAN after each of {epochs} epochs on {seen} images of {settings.data}"
    found: dict[str, Any] = {"name": "acgan", "about": about, "images": count, "settings": asdict(settings)}
    return found | {"error_by_epoch": errors, "variety_by_epoch": variety}


def _variety(generated: TensorImages) -> float:
    """Return the standard deviation of a pixel among images of one digit, averaged over pixels and digits."""
    pixels = as_floats(generated.images)
    of_digit = [pixels[generated.labels == digit].std(0, correction=0).mean() for digit in generated.labels.unique()]
    return torch.stack(of_digit).mean().item()
