"""Images that a GAN has drawn."""

from __future__ import annotations

from dataclasses import asdict, replace

from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.acgan import EPOCHS, PER_DIGIT, SIZES, generate, train_acgan
from torchcaps.evaluate.canvas import check_digits, first_images
from torchcaps.reproduce.measures.registry import Measured, Subject, measure_named
from torchcaps.train import load, measure


@measure_named(
    "acgan-error",
    "%",
    "wrong answers on digits drawn by an AC-GAN after an epoch of its training; each seed has a GAN of its own",
)
def acgan_error(subject: Subject, epoch: int = EPOCHS, images: int = 10 * PER_DIGIT) -> Measured:
    """chen2019, Table 3."""
    run = subject.run
    settings = replace(SIZES[run.config().size], seed=subject.seed)
    if not 1 <= epoch <= EPOCHS:
        raise TorchcapsError(f"the AC-GAN is looked at after epochs 1 to {EPOCHS}, got {epoch}")
    model = load(run.path)
    check_digits(model, run.config().data, "drawn digits")
    train_acgan(settings.folder(), settings, epoch)
    drawn = generate(settings.folder(), epoch, images)
    found = measure(model, first_images(model, drawn, None))
    return Measured(100 * (1 - found.accuracy), found.images, {"gan": asdict(settings)})
