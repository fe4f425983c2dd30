"""The training loop, top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn, optim

from torchcaps.data import Augmentation, ImageSet, Subset, load_dataset, split_off
from torchcaps.errors import TorchcapsError
from torchcaps.train.checkpoint import Progress, all_finite, load_checkpoint, save_checkpoint, save_weights
from torchcaps.train.config import RunConfig
from torchcaps.train.device import make_fabric
from torchcaps.train.display import Display
from torchcaps.train.interrupt import Interrupted, stop_requests
from torchcaps.train.metrics import Line, Metrics
from torchcaps.train.objective import Objective, correct
from torchcaps.train.order import batch_indices, seed_step, step_generator, steps_per_epoch
from torchcaps.train.run_folder import RunFolder
from torchcaps.train.schedules import make_schedule
from torchcaps.train.validate import measure, seen_by

MOST_VALIDATION = 10_000  # images; an endless set would be validated endlessly
MOST_PREPARATION = 10_000  # images for what a model learns from pixels alone, such as their mean
FEWEST_VALIDATIONS = 4
MATCHING_VALIDATIONS = 10  # an epoch, where a run stops at an accuracy: it should not run far past it
LINE_EVERY = 50  # steps between two lines of metrics
ADVICE = "A lower learning rate often helps. The last good state is kept in"


def training_sets(config: RunConfig) -> tuple[ImageSet, ImageSet]:
    """The images to train on and those that select the checkpoint: from the training split, or the split to stop on."""
    whole = load_dataset(config.data, "train")
    wanted = min(config.train_images or len(whole), len(whole))
    count = min(max(1, round(config.validation * wanted)), MOST_VALIDATION)
    # The split does not depend on the run's seed, so that runs with several seeds are chosen on the same images.
    training, validation = split_off(whole, count, seed=0)
    if config.stop_on != "validation":
        validation = load_dataset(config.data, config.stop_on)
    if wanted - count < len(training):
        training = Subset(training, torch.arange(wanted - count))
    return training, validation


def fit(run: RunFolder, *, over: Callable[[], bool] = lambda: False) -> Progress:
    """Train a run from where it stands to its end.

    A run that was stopped or killed at any moment goes on from its last checkpoint and ends with the same
    weights, to the bit, as one that was never stopped. ``over`` is asked after every step: once it says yes, the
    run is saved and stops, as if somebody had pressed Ctrl-C.
    """
    config = run.config()
    training, validation = training_sets(config)
    fabric = make_fabric(config)
    torch.manual_seed(config.seed)
    model = config.build_model()
    optimizer = make_optimizer(model, config)
    if run.last.is_file():
        progress = load_checkpoint(run.last, model, optimizer)
    else:
        progress = Progress()
        sample = torch.arange(min(len(training), MOST_PREPARATION))
        model.prepare(seen_by(model, training.batch(sample).images))
    objective, optimizer = fabric.setup(Objective(model, config), optimizer)

    per_epoch = steps_per_epoch(len(training), config.batch_size)
    total = min(config.epochs * per_epoch, config.steps or config.epochs * per_epoch)
    # Once an epoch, but in a short run often enough to see a curve and to choose from.
    validate_every = min(per_epoch, -(-total // FEWEST_VALIDATIONS))
    enough = config.stop_at_accuracy or math.inf
    if enough <= 1:
        validate_every = min(validate_every, -(-per_epoch // MATCHING_VALIDATIONS))
    schedule, augment = make_schedule(config.schedule), Augmentation(config.augmentation)
    metrics = Metrics(run.path, run.metrics_file, progress)
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at
        if not all_finite(model):
            raise TorchcapsError(f"the weights are no longer finite at step {progress.step}. {ADVICE} {run.path}")
        save_checkpoint(run.last, model, optimizer.optimizer, progress)
        saved_at = time.monotonic()

    with Display(f"{config.model} on {config.data}", progress.step, total) as display, stop_requests() as stop:
        while True:
            due = progress.step % validate_every == 0 or progress.step == total
            if due and progress.validated_at < progress.step:
                accuracy = measure(model, validation, description="validating").accuracy
                if accuracy > progress.best_accuracy:
                    progress.best_accuracy, progress.best_step = accuracy, progress.step
                    save_weights(run.best, model)
                line = make_line(progress, per_epoch, "validation", None, accuracy, optimizer.param_groups[0]["lr"])
                metrics.write(line)
                display.validated(line)
                progress.validated_at = progress.step
                save()
            if progress.step == total or progress.best_accuracy >= enough:
                break

            began = time.perf_counter()
            seed_step(config.seed, progress.step, fabric.global_rank)
            rate = config.learning_rate * schedule(progress.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            indices = batch_indices(len(training), config.batch_size, config.seed, progress.step)
            batch = training.batch(indices)
            images = augment(batch.images, step_generator(config.seed, progress.step, fabric.global_rank))
            images, labels, targets = fabric.to_device((images, batch.labels, batch.targets))

            objective.train()
            loss, output = objective(images, labels, targets, progress.step / total)
            optimizer.zero_grad()
            fabric.backward(loss)
            if trouble := find_trouble(loss, model):
                save()  # the weights of before this step, which are good
                raise TorchcapsError(
                    f"{trouble} at step {progress.step}, images {indices.tolist()}. {ADVICE} {run.path}"
                )
            optimizer.step()
            with torch.no_grad():
                model.after_step(output, labels)

            count = len(indices)
            progress.step += 1
            progress.images += count
            progress.seen += count
            progress.loss_sum += loss.item() * count
            progress.correct_sum += int(correct(output.scores.detach(), labels).sum())
            progress.seconds += time.perf_counter() - began
            speed = progress.images / progress.seconds
            display.step(progress.loss_sum / progress.seen, progress.correct_sum / progress.seen, speed)
            if progress.step % LINE_EVERY == 0 or progress.step == total:
                means = progress.loss_sum / progress.seen, progress.correct_sum / progress.seen
                metrics.write(make_line(progress, per_epoch, "train", *means, rate))
                progress.loss_sum, progress.correct_sum, progress.seen = 0.0, 0, 0
            if stop() or over():
                save()
                raise Interrupted
            if time.monotonic() - saved_at >= 60 * config.save_minutes:
                save()
    metrics.close()
    return progress


def find_trouble(loss: Tensor, model: nn.Module) -> str | None:
    """One phrase if the loss or a gradient is not finite, else None."""
    if not torch.isfinite(loss):
        return f"the loss became {loss.item()}"
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    return None if torch.isfinite(norm) else f"the gradient became {norm.item()}"


def make_optimizer(model: nn.Module, config: RunConfig) -> optim.Optimizer:
    """The optimiser by name; its learning rate is set anew at every step."""
    if config.optimizer == "rmsprop":
        return optim.RMSprop(model.parameters(), lr=config.learning_rate, alpha=0.9)
    return optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)


def make_line(progress: Progress, per_epoch: int, split: str, loss: float | None, accuracy: float, rate: float) -> Line:
    """A line of metrics for where the run stands."""
    speed = progress.images / progress.seconds
    return Line(progress.step, progress.step / per_epoch, split, loss, accuracy, rate, speed, progress.seconds)
