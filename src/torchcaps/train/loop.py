"""The training loop, top to bottom."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import optim

from torchcaps.data import Augmentation, ImageSet, Subset
from torchcaps.errors import TorchcapsError
from torchcaps.files import remove_unfinished
from torchcaps.kernels.autotune import use_forms
from torchcaps.models import Model, Output
from torchcaps.train.batch_norm import set_shared, share_statistics
from torchcaps.train.callbacks import Callback
from torchcaps.train.checkpoint import TrainingProgress, all_finite, load_checkpoint, save_checkpoint, save_weights
from torchcaps.train.config import RunConfig
from torchcaps.train.device import describe_conditions, flush_denormals, make_fabric, warn_changed_conditions
from torchcaps.train.display import Display
from torchcaps.train.distributed import DistributedContext, find_world, gathered
from torchcaps.train.metrics import MetricsWriter, make_metric_row
from torchcaps.train.objective import Objective, correct, crop_to_model, evaluate_accuracy
from torchcaps.train.optimizers import make_optimizer, make_schedule, nonfinite_reason
from torchcaps.train.processes import Interrupted, stop_requests, train_in_processes
from torchcaps.train.run_folder import RunFolder
from torchcaps.train.sampler import batch_indices, seed_step, share_of, step_generator, steps_per_epoch
from torchcaps.train.splits import training_splits
from torchcaps.train.tensorboard import SHOWN, TensorBoardImages, open_tensorboard

log = logging.getLogger(__name__)
MOST_PREPARATION = 10_000  # images for what a model learns from pixels alone, such as their mean
FEWEST_VALIDATIONS = 4
MATCHING_VALIDATIONS = 10  # an epoch, where a run stops at an accuracy: it should not run far past it
LOG_EVERY = 50  # steps between two lines of metrics
ADVICE = "A lower learning rate often helps. The last good state is kept in"


def fit_run(
    run: RunFolder, *, should_stop: Callable[[], bool] = lambda: False, callbacks: Sequence[Callback] = ()
) -> TrainingProgress:
    """Train a run from where it stands to its end.

    A run that was stopped or killed at any moment goes on from its last checkpoint and ends with the same
    weights, to the bit, as one that was never stopped. ``should_stop`` is asked after every step: once it says yes, the
    run is saved and stops, as if somebody had pressed Ctrl-C. ``callbacks`` watch; see :class:`Callback`.

    With settings for several devices, as many processes share every batch; with torchrun or srun this is one of them.
    """
    run.check_inside()
    config = run.config()
    world = find_world(config)
    if world.processes > 1 and not world.started:
        if callbacks:
            raise TorchcapsError("callbacks watch a training in their own process: start the others by torchrun")
        return train_in_processes(run, world.processes, should_stop)
    context = DistributedContext(make_fabric(config))
    forms = run.convolution_forms()
    with context.watched(run.path), contextlib.ExitStack() as held, flush_denormals(), use_forms(forms):
        with context.refusing_together():
            if context.is_main:
                held.enter_context(run.locked())
                run.check_dataset()
        return run_training(run, config, context, forms, should_stop, callbacks)


def run_training(
    run: RunFolder,
    config: RunConfig,
    context: DistributedContext,
    forms: dict[str, str],
    should_stop: Callable[[], bool],
    callbacks: Sequence[Callback],
) -> TrainingProgress:
    """What every process does; see :func:`fit`. ``forms`` are those of the convolutions, see ``use_forms``."""
    fabric = context.fabric
    recorded, conditions = run.training_record(), describe_conditions(context.world_size)
    if context.is_main:
        if run.last.is_file():
            warn_changed_conditions(recorded, conditions)
        remove_unfinished(run.path)
        remove_unfinished(run.last.parent)
    training, validation = training_splits(config)
    torch.manual_seed(config.seed)
    model = config.build_model(run.last if run.last.is_file() else None)
    if not run.last.is_file():
        sample = torch.arange(min(len(training), MOST_PREPARATION))
        model.prepare(crop_to_model(model, training.batch(sample).images))
    if context.world_size > 1:
        share_statistics(model)
    with_loss = Objective(model, config)
    objective = fabric.setup_module(with_loss)
    bare = make_optimizer(model, config)  # after the weights have come to their device, or were sharded
    progress = load_checkpoint(run.last, model, bare) if run.last.is_file() else TrainingProgress()
    optimizer = cast(optim.Optimizer, fabric.setup_optimizers(bare))

    per_epoch = steps_per_epoch(len(training), config.batch_size)
    total = min(config.epochs * per_epoch, config.steps or config.epochs * per_epoch)
    # Once an epoch, but in a short run often enough to see a curve and to choose from.
    validate_every = min(per_epoch, -(-total // FEWEST_VALIDATIONS))
    enough = config.stop_at_accuracy or math.inf
    if enough <= 1:
        validate_every = min(validate_every, -(-per_epoch // MATCHING_VALIDATIONS))
    if progress.step > total:
        log.warning(
            "%s is at step %s, beyond the %s steps of its settings: it ends here", run.path, progress.step, total
        )
    schedule, augment = make_schedule(config.schedule), Augmentation(config.augmentation)
    board = open_tensorboard(run.path, progress.step) if context.is_main else None
    metrics = MetricsWriter(run.metrics_file, progress, board) if context.is_main else None
    callbacks_here = list(callbacks) if context.is_main else []
    if board is not None:
        few = validation.batch(torch.arange(min(SHOWN, len(validation)))).images
        callbacks_here.append(TensorBoardImages(board, crop_to_model(model, few)))
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at, recorded
        if not all_finite(model):
            context.refuse(f"the weights are no longer finite at step {progress.step}. {ADVICE} {run.path}")
        record = conditions | {"convolutions": context.union(forms)}
        if context.is_main and record != recorded:
            run.write_training_record(record)
            recorded = record
        save_checkpoint(run.last, model, bare, progress, write=context.is_main)
        context.wait()  # what one has written, all may rely on
        saved_at = time.monotonic()

    display = Display(f"{config.model} on {config.data}", progress.step, total, shown=context.is_main)
    with display, stop_requests() as stop:
        while True:
            due = progress.step % validate_every == 0 or progress.step >= total
            if due and progress.validated_at < progress.step:
                with gathered(with_loss):
                    accuracy = validation_accuracy(context, model, validation)
                if accuracy > progress.best_accuracy:
                    progress.best_accuracy, progress.best_step = accuracy, progress.step
                    save_weights(run.best, model, write=context.is_main)
                line = make_metric_row(
                    progress, per_epoch, "validation", None, accuracy, optimizer.param_groups[0]["lr"]
                )
                if metrics:
                    metrics.write(line)
                display.validated(line)
                progress.validated_at = progress.step
                save()
                model.eval()
                with gathered(with_loss), torch.no_grad():
                    for each in callbacks_here:
                        each.on_validation(line, model)
            if progress.step >= total or progress.best_accuracy >= enough:
                break

            began = time.perf_counter()
            seed_step(config.seed, progress.step, context.rank)
            rate = config.learning_rate * schedule(progress.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            indices = batch_indices(len(training), config.batch_size, config.seed, progress.step)
            count = len(indices)
            share = share_of(count, context.rank, context.world_size)
            batch = training.batch(indices[share.part])
            images = augment(batch.images, step_generator(config.seed, progress.step), part=share.part, of=count)
            images, labels, targets = fabric.to_device((images, batch.labels, batch.targets))

            objective.train()
            set_shared(model, share.copies == 1)
            loss, output = objective(images, labels, targets, progress.step / total)
            optimizer.zero_grad()
            # The mean over processes of what comes out is then the gradient of the whole batch's mean loss.
            fabric.backward(loss * (share.counted * context.world_size / count))
            right = int(correct(output.scores.detach(), labels).sum()) / share.copies
            loss_sum, correct_sum = context.all_reduce_sum(loss.item() * share.counted, right)
            if reason := nonfinite_reason(loss_sum, model):
                save()  # the weights of before this step, which are good
                context.refuse(f"{reason} at step {progress.step}, images {indices.tolist()}. {ADVICE} {run.path}")
            optimizer.step()
            with gathered(with_loss), torch.no_grad():
                repeated = share.copies > 1 and not context.is_main
                model.after_step(mask_duplicate_votes(output) if repeated else output, labels)

            progress.step += 1
            progress.images += count
            progress.seen += count
            progress.loss_sum += loss_sum
            progress.correct_sum += round(correct_sum)
            progress.seconds += time.perf_counter() - began
            speed = progress.images / progress.seconds
            display.step(progress.loss_sum / progress.seen, progress.correct_sum / progress.seen, speed)
            for each in callbacks_here:
                each.on_step(make_metric_row(progress, per_epoch, "train", loss_sum / count, correct_sum / count, rate))
            if progress.step % LOG_EVERY == 0 or progress.step == total:
                means = progress.loss_sum / progress.seen, progress.correct_sum / progress.seen
                if metrics:
                    metrics.write(make_metric_row(progress, per_epoch, "train", *means, rate))
                progress.loss_sum, progress.correct_sum, progress.seen = 0.0, 0, 0
            asked, due = context.any(stop() or should_stop(), time.monotonic() - saved_at >= 60 * config.save_minutes)
            if asked or due:
                save()
            if asked:
                raise Interrupted
    for each in callbacks_here:
        each.on_end(progress, model.eval())
    if metrics:
        metrics.close()
    return progress


def validation_accuracy(context: DistributedContext, model: Model, images: ImageSet) -> float:
    """Accuracy on a set of images, each process having looked at its share."""
    share = share_of(len(images), context.rank, context.world_size)
    own = Subset(images, torch.arange(len(images))[share.part]) if context.world_size > 1 else images
    measured = evaluate_accuracy(model, own, description="validating")
    return round(context.all_reduce_sum(measured.accuracy * share.counted)[0]) / len(images)


def mask_duplicate_votes(output: Output) -> Output:
    """Zero the votes of images that another process computes too, so that a routing learns from them once."""
    return output if output.votes is None else output._replace(votes=torch.zeros_like(output.votes))
