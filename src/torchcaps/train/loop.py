"""The training loop, top to bottom."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import optim

from torchcaps.data import Augmentation, ImageSet, Subset
from torchcaps.data.datasets.image_folder import display_name
from torchcaps.errors import TorchcapsError
from torchcaps.files import remove_unfinished
from torchcaps.kernels.autotune import use_forms
from torchcaps.models import Model, Output
from torchcaps.train.callbacks import Callback, Display
from torchcaps.train.checkpoint import (
    TrainingProgress,
    all_finite,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from torchcaps.train.config import PYTHON, RunConfig
from torchcaps.train.device import flush_denormals, make_fabric, training_conditions, warn_changed_conditions
from torchcaps.train.distributed import DistributedContext, find_world, set_shared, share_statistics, unsharded
from torchcaps.train.metrics import MetricsWriter, make_metric_row
from torchcaps.train.objective import Objective, correct, crop_to_model, evaluate_accuracy, nonfinite_reason
from torchcaps.train.optimizers import make_optimizer, make_schedule
from torchcaps.train.processes import Interrupted, stop_requests, train_in_processes
from torchcaps.train.run_folder import RunFolder
from torchcaps.train.sampler import (
    BalancedOrder,
    all_labels,
    batch_indices,
    class_weights,
    seed_step,
    shard_of,
    step_generator,
    steps_per_epoch,
)
from torchcaps.train.splits import Fingerprint, training_splits
from torchcaps.train.tensorboard import SHOWN, TensorBoardImages, open_tensorboard

log = logging.getLogger(__name__)
MOST_PREPARATION = 10_000  # images from which a model computes statistics before training, such as their mean
FEWEST_VALIDATIONS = 4
# Validations per epoch of a run that stops at an accuracy: few at first, and more often once it makes at most twice as
# many errors as it may, since it should not train far past the accuracy.
EARLY_VALIDATIONS, MATCHING_VALIDATIONS, NEAR_ERRORS = 2, 10, 2
LOG_EVERY = 50  # steps between two rows of training metrics
ADVICE = "A lower learning rate often helps. The last good state is in"


def fit_run(
    run: RunFolder,
    *,
    splits: tuple[ImageSet, ImageSet] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    callbacks: Sequence[Callback] = (),
) -> TrainingProgress:
    """Train a run from its last checkpoint, or from the start, to its end.

    A run that was stopped or killed at any moment continues from its last checkpoint and ends with the same weights,
    bit for bit, as one that was never stopped. With ``devices`` > 1 in its config, as many processes are started and
    share every batch; under torchrun or srun this process is one of them.

    Args:
        run: the run directory.
        splits: training and validation images, if they are loaded already; None: those of the config.
        should_stop: called after every step; once it returns True, the run is saved and stops as after Ctrl-C.
        callbacks: observers of the training, see :class:`Callback`.
    """
    run.check_inside()
    config = run.config()
    config.check_registered()
    world = find_world(config)
    if world.processes > 1 and not world.started:
        if callbacks:
            raise TorchcapsError("callbacks run in the training process: start several processes with torchrun instead")
        return train_in_processes(run, world.processes, should_stop)
    with training_context(run, config) as (context, forms):
        training, validation = splits or training_splits(config)
        torch.manual_seed(config.seed)
        model = config.build_model(run.last if run.last.is_file() else None)
        if run.initial.is_file() and not run.last.is_file():
            load_weights(run.initial, model)
        return run_training(run, config, model, training, validation, context, forms, should_stop, callbacks)


@contextlib.contextmanager
def training_context(
    run: RunFolder, config: RunConfig, fingerprint: Fingerprint | None = None
) -> Iterator[tuple[DistributedContext, dict[str, str]]]:
    """Join the other processes, lock the run and check its dataset; yield the context and the convolution forms.

    ``fingerprint`` describes images that were given from Python; see ``use_forms`` for the forms.
    """
    context, forms = DistributedContext(make_fabric(config)), run.convolution_forms()
    with context.watched(run.path), contextlib.ExitStack() as held, flush_denormals(), use_forms(forms):
        with context.raise_together():
            if context.is_main:
                held.enter_context(run.locked())
                run.check_dataset(fingerprint)
        yield context, forms


def run_training(
    run: RunFolder,
    config: RunConfig,
    model: Model,
    training: ImageSet,
    validation: ImageSet,
    context: DistributedContext,
    forms: dict[str, str],
    should_stop: Callable[[], bool],
    callbacks: Sequence[Callback],
    *,
    tensorboard: bool = True,
) -> TrainingProgress:
    """Run the training loop in this process, one of ``context.world_size``; see :func:`fit_run`."""
    fabric = context.fabric
    recorded, conditions = run.training_record(), training_conditions(context.world_size)
    resumed = run.last.is_file()
    if context.is_main:
        if resumed:
            warn_changed_conditions(recorded, conditions)
        remove_unfinished(run.path)
        remove_unfinished(run.last.parent)
    if not resumed and not run.initial.is_file():
        sample = torch.arange(min(len(training), MOST_PREPARATION))
        model.prepare(crop_to_model(model, training.batch(sample).images))
    if context.world_size > 1:
        share_statistics(model)
    weights = class_weights(all_labels(training), model.classes) if config.balance == "weights" else None
    with_loss = Objective(model, config, weights)
    balanced = BalancedOrder(all_labels(training), config.seed) if config.balance == "sample" else None
    objective = fabric.setup_module(with_loss)
    bare = make_optimizer(model, config)  # after the weights were moved to their device, or sharded
    progress = load_checkpoint(run.last, model, bare) if resumed else TrainingProgress()
    optimizer = cast(optim.Optimizer, fabric.setup_optimizers(bare))

    per_epoch = steps_per_epoch(len(training), config.batch_size)
    total = min(config.epochs * per_epoch, config.steps or config.epochs * per_epoch)
    # Once per epoch, but in a short run often enough to see a curve and to choose a checkpoint.
    validate_every = min(per_epoch, -(-total // FEWEST_VALIDATIONS))
    pace = 1.0 if config.margin_pace is None else config.margin_pace
    enough = config.stop_at_accuracy or math.inf
    if enough <= 1:
        validate_every = min(validate_every, -(-per_epoch // EARLY_VALIDATIONS))
    validate_every_near = min(validate_every, -(-per_epoch // MATCHING_VALIDATIONS))
    if progress.step > total:
        log.warning("%s is at step %s, past the %s steps of its config: it ends here", run.path, progress.step, total)
    schedule, augment = make_schedule(config.schedule, config.learning_rate, total), Augmentation(config.augmentation)
    writer = open_tensorboard(run.path, progress.step) if context.is_main and tensorboard else None
    metrics = MetricsWriter(run.metrics_file, progress, writer) if context.is_main else None
    observers = list(callbacks) if context.is_main else []
    if writer is not None:
        few = validation.batch(torch.arange(min(SHOWN, len(validation)))).images
        observers.append(TensorBoardImages(writer, crop_to_model(model, few)))
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at, recorded
        if not all_finite(model):
            context.abort(f"the weights are not finite at step {progress.step}. {ADVICE} {run.path}")
        record = conditions | {"convolutions": context.merge_dicts(forms)}
        if context.is_main and record != recorded:
            run.write_training_record(record)
            recorded = record
        save_checkpoint(run.last, model, bare, progress, write=context.is_main)
        context.barrier()  # no process goes on before the file is written
        saved_at = time.monotonic()

    display = Display(run_title(config), progress.step, total, shown=context.is_main)
    with display, stop_requests() as stop_requested:
        while True:
            near = 1 - max(progress.best_accuracy, 0.0) <= NEAR_ERRORS * (1 - enough)
            due = progress.step % (validate_every_near if near else validate_every) == 0 or progress.step >= total
            if due and progress.validated_at < progress.step:
                with unsharded(with_loss):
                    accuracy = validation_accuracy(context, model, validation)
                if accuracy > progress.best_accuracy:
                    progress.best_accuracy, progress.best_step = accuracy, progress.step
                    save_weights(run.best, model, write=context.is_main)
                rate = optimizer.param_groups[0]["lr"]
                row = make_metric_row(progress, per_epoch, "validation", None, accuracy, rate)
                if metrics:
                    metrics.write(row)
                display.validated(row)
                progress.validated_at = progress.step
                save()
                model.eval()
                with unsharded(with_loss), torch.no_grad():
                    for each in observers:
                        each.on_validation(row, model)
            if progress.step >= total or progress.best_accuracy >= enough:
                break

            began, cpu_began = time.perf_counter(), time.process_time()
            seed_step(config.seed, progress.step, context.rank)
            rate = schedule(progress.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            indices = (
                batch_indices(len(training), config.batch_size, config.seed, progress.step)
                if balanced is None
                else balanced.batch(config.batch_size, progress.step)
            )
            count = len(indices)
            shard = shard_of(count, context.rank, context.world_size)
            batch = training.batch(indices[shard.part])
            images = augment(batch.images, step_generator(config.seed, progress.step), part=shard.part, of=count)
            jitter = augment.jitter(step_generator(config.seed, progress.step), count, part=shard.part)
            images, labels, targets, jitter = fabric.to_device((images, batch.labels, batch.targets, jitter))

            objective.train()
            set_shared(model, shard.copies == 1)
            loss, output = objective(images, labels, targets, pace * progress.step / total, jitter)
            optimizer.zero_grad()
            # Averaged over the processes, this gives the gradient of the mean loss of the whole batch.
            fabric.backward(loss * (shard.counted * context.world_size / count))
            right = int(correct(output.scores.detach(), labels).sum()) / shard.copies
            loss_sum, correct_sum = context.all_reduce_sum(loss.item() * shard.counted, right)
            if reason := nonfinite_reason(loss_sum, model):
                save()  # the weights from before this step, which are good
                context.abort(f"{reason} at step {progress.step}, images {indices.tolist()}. {ADVICE} {run.path}")
            if config.clip_norm:
                fabric.clip_gradients(objective, optimizer, max_norm=config.clip_norm)
            optimizer.step()
            with unsharded(with_loss), torch.no_grad():
                duplicate = shard.copies > 1 and not context.is_main
                model.after_step(mask_duplicate_votes(output) if duplicate else output, labels)

            progress.step += 1
            progress.images += count
            progress.seen += count
            progress.loss_sum += loss_sum
            progress.correct_sum += round(correct_sum)
            progress.seconds += time.perf_counter() - began
            progress.core_seconds += time.process_time() - cpu_began
            speed = progress.images / progress.seconds
            display.step(progress.loss_sum / progress.seen, progress.correct_sum / progress.seen, speed)
            for each in observers:
                each.on_step(make_metric_row(progress, per_epoch, "train", loss_sum / count, correct_sum / count, rate))
            if progress.step % LOG_EVERY == 0 or progress.step == total:
                means = progress.loss_sum / progress.seen, progress.correct_sum / progress.seen
                if metrics:
                    metrics.write(make_metric_row(progress, per_epoch, "train", *means, rate))
                progress.loss_sum, progress.correct_sum, progress.seen = 0.0, 0, 0
            save_due = time.monotonic() - saved_at >= 60 * config.save_minutes
            stop, save_due = context.any(stop_requested() or should_stop(), save_due)
            if stop or save_due:
                save()
            if stop:
                raise Interrupted
    for each in observers:
        each.on_end(progress, model.eval())
    if metrics:
        metrics.close()
    return progress


def run_title(config: RunConfig) -> str:
    """Name a run in a progress line: model, its settings, seed and images."""
    if config.data == PYTHON:
        return config.model.removeprefix(f"{PYTHON}:")
    settings = "".join(f" {name}={value}" for name, value in config.options.items() if name != "backbone")
    return f"{config.model}{settings} seed {config.seed} on {display_name(config.data)}"


def validation_accuracy(context: DistributedContext, model: Model, images: ImageSet) -> float:
    """Compute the accuracy on a set of images, of which every process evaluates its shard."""
    shard = shard_of(len(images), context.rank, context.world_size)
    own = Subset(images, torch.arange(len(images))[shard.part]) if context.world_size > 1 else images
    found = evaluate_accuracy(model, own, description="validating")
    return round(context.all_reduce_sum(found.accuracy * shard.counted)[0]) / len(images)


def mask_duplicate_votes(output: Output) -> Output:
    """Zero the votes of images that another process computes too, so that a routing learns from them once."""
    return output if output.votes is None else output._replace(votes=torch.zeros_like(output.votes))
