"""The learning rate range test: train with a growing learning rate and see where the loss falls and where it diverges.

Smith: Cyclical Learning Rates for Training Neural Networks, 2017, https://arxiv.org/abs/1506.01186, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import optim

from torchcaps.analysis.style import COLORS, figure_style, figure_text, new_figure, save_figure
from torchcaps.data import Augmentation, ImageSet
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar
from torchcaps.train.config import RunConfig
from torchcaps.train.device import flush_denormals, make_fabric
from torchcaps.train.loop import MOST_PREPARATION
from torchcaps.train.objective import Objective, crop_to_model, nonfinite_reason
from torchcaps.train.optimizers import make_optimizer
from torchcaps.train.sampler import batch_indices, seed_step, step_generator
from torchcaps.train.splits import training_splits

LOWEST, HIGHEST = 1e-5, 1.0
WARMUP = 0.1  # of the suggested schedule
FEWEST_STEPS = 20
SMOOTHED = 0.15  # decades of the learning rate: standard deviation of the Gaussian that smooths the losses
DIVERGED = 2.0  # the test ends when the loss is this many times the first one
FALL = 0.05  # the loss must fall by this fraction, otherwise nothing can be suggested
RISE = 0.1  # the stable range ends when the loss has risen by this fraction of its fall
BELOW_LIMIT = 4.0  # the suggested peak is the end of the stable range divided by this


@dataclass(frozen=True)
class RateTest:
    """The outcome of a range test: the loss of every step, and the suggested peak of a one-cycle schedule."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    diverged_at: float | None  # the learning rate at which the test ended early
    peak: float

    def rows(self) -> list[tuple[float, float]]:
        """Learning rates in steps of about a quarter of a decade, with the smoothed loss."""
        every = max(1, round(0.25 / math.log10(self.rates[1] / self.rates[0])))
        return list(zip(self.rates, self.smoothed, strict=True))[::every]

    @property
    def schedule(self) -> str:
        """The suggested schedule, as ``torchcaps train --schedule`` takes it."""
        return f"one-cycle:{self.peak:g}:{WARMUP:g}"


def tune_rate(config: RunConfig, *, steps: int = 100, training: ImageSet | None = None) -> RateTest:
    """Train a new model with a learning rate that grows exponentially from 1e-5 to 1, and suggest a peak rate.

    The images are those of the training split without its validation images. A loss with a schedule stays at its
    start. The test ends early when the loss diverges.

    Args:
        config: the model, dataset and settings; its learning rate and schedule are not used.
        steps: number of steps, at least 20.
        training: the images; None: those of the config.
    """
    if steps < FEWEST_STEPS:
        raise TorchcapsError(f"a learning rate range test needs at least {FEWEST_STEPS} steps, got {steps}")
    fabric, augment = make_fabric(config), Augmentation(config.augmentation)
    if training is None:
        training, _ = training_splits(config)
    torch.manual_seed(config.seed)
    model = config.build_model()
    model.prepare(crop_to_model(model, training.batch(torch.arange(min(len(training), MOST_PREPARATION))).images))
    objective = fabric.setup_module(Objective(model, config))
    optimizer = cast(optim.Optimizer, fabric.setup_optimizers(make_optimizer(model, config)))
    rates = [LOWEST * (HIGHEST / LOWEST) ** (step / (steps - 1)) for step in range(steps)]
    losses: list[float] = []
    diverged_at = None
    objective.train()
    with flush_denormals(), progress_bar(f"{config.model} on {config.data}", steps) as advance:
        for step, rate in enumerate(rates):
            seed_step(config.seed, step, 0)
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch = training.batch(batch_indices(len(training), config.batch_size, config.seed, step))
            images = augment(batch.images, step_generator(config.seed, step))
            images, labels, targets = fabric.to_device((images, batch.labels, batch.targets))
            loss, output = objective(images, labels, targets, 0.0)
            optimizer.zero_grad()
            fabric.backward(loss)
            value = loss.item()
            if nonfinite_reason(value, model) or (losses and value > DIVERGED * losses[0] and _rising(losses)):
                diverged_at = rate
                break
            losses.append(value)
            if config.clip_norm:
                fabric.clip_gradients(objective, optimizer, max_norm=config.clip_norm)
            optimizer.step()
            with torch.no_grad():
                model.after_step(output, labels)
            advance(1)
    if len(losses) < 2:
        raise TorchcapsError(
            f"the loss of {config.model} diverged at a learning rate of {rates[len(losses)]:g} already, so no rate can "
            "be suggested: check the images and the loss"
        )
    smoothed = smooth_losses(rates[: len(losses)], losses)
    return RateTest(
        tuple(rates[: len(losses)]), tuple(losses), tuple(smoothed), diverged_at, suggest_peak(rates, smoothed)
    )


def _rising(losses: Sequence[float]) -> bool:
    """Whether the last losses are above the lowest ones; a single bad batch does not end the test."""
    last = sorted(losses[-3:])
    return last[len(last) // 2] > 1.5 * min(losses)


def smooth_losses(rates: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Smooth losses with a Gaussian over the logarithm of the learning rate, without lag."""
    places = [math.log10(rate) / SMOOTHED for rate in rates]
    smoothed = []
    for here in places:
        weights = [math.exp(-0.5 * (here - place) ** 2) for place in places]
        smoothed.append(sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights))
    return smoothed


def suggest_peak(rates: Sequence[float], smoothed: Sequence[float]) -> float:
    """Suggest a peak learning rate from smoothed losses: a quarter of the rate at which they begin to rise.

    It is rounded to one significant digit. A loss that falls again after a rise has left the stable range.

    >>> suggest_peak([0.001, 0.012, 0.1, 1.0], [1.0, 0.5, 0.9, 0.3])
    0.003
    """
    lowest, limit = smoothed[0], rates[0]
    for rate, loss in zip(rates, smoothed, strict=False):
        lowest = min(lowest, loss)
        fall = smoothed[0] - lowest
        if fall > FALL * smoothed[0] and loss > lowest + RISE * fall:
            break
        limit = rate
    if smoothed[0] - lowest <= FALL * smoothed[0]:
        raise TorchcapsError(
            f"the loss fell by less than {FALL:.0%} at all learning rates ({smoothed[0]:.4g} to {lowest:.4g}), so no "
            "rate can be suggested: use more steps, or check the images and the loss"
        )
    return float(f"{limit / BELOW_LIMIT:.0e}")


def draw_rate_test(found: RateTest, title: str, target: Path) -> None:
    """Plot the loss against the learning rate, as PNG or SVG."""
    with figure_style():
        figure = new_figure(7, 3.6)
        axes = figure.subplots()
        axes.plot(found.rates, found.losses, ".", color=COLORS[0], alpha=0.4, label="loss of a batch")
        axes.plot(found.rates, found.smoothed, color=COLORS[0], label="smoothed")
        axes.axvline(found.peak, color=COLORS[1], label=f"suggested peak, {found.peak:g}")
        if found.diverged_at:
            axes.axvline(found.diverged_at, color=COLORS[4], linestyle=":", label=f"diverged, {found.diverged_at:.1g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="training loss", title=figure_text(title))
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, target)
