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
from torchcaps.train.checkpoint import Progress, all_finite, load_checkpoint, save_checkpoint, save_weights
from torchcaps.train.config import RunConfig
from torchcaps.train.device import describe_conditions, flushed_denormals, make_fabric, tell_conditions
from torchcaps.train.display import Display
from torchcaps.train.distributed import Ranks, find_world, gathered
from torchcaps.train.metrics import Metrics, make_line
from torchcaps.train.objective import Objective, correct, measure, seen_by
from torchcaps.train.optimizers import find_trouble, make_optimizer, make_schedule
from torchcaps.train.processes import Interrupted, stop_requests, train_in_processes
from torchcaps.train.run_folder import RunFolder
from torchcaps.train.sampler import batch_indices, seed_step, share_of, step_generator, steps_per_epoch
from torchcaps.train.splits import training_sets
from torchcaps.train.tensorboard import SHOWN, BoardFigures, open_board

log = logging.getLogger(__name__)
MOST_PREPARATION = 10_000  # images for what a model learns from pixels alone, such as their mean
FEWEST_VALIDATIONS = 4
MATCHING_VALIDATIONS = 10  # an epoch, where a run stops at an accuracy: it should not run far past it
LINE_EVERY = 50  # steps between two lines of metrics
ADVICE = "A lower learning rate often helps. The last good state is kept in"


def fit(run: RunFolder, *, over: Callable[[], bool] = lambda: False, callbacks: Sequence[Callback] = ()) -> Progress:
    """Train a run from where it stands to its end.

    A run that was stopped or killed at any moment goes on from its last checkpoint and ends with the same
    weights, to the bit, as one that was never stopped. ``over`` is asked after every step: once it says yes, the
    run is saved and stops, as if somebody had pressed Ctrl-C. ``callbacks`` watch; see :class:`Callback`.

    With settings for several devices, as many processes share every batch; with torchrun or srun this is one of them.
    """
    run.check_inside()
    config = run.config()
    world = find_world(config)
    if world.processes > 1 and not world.started:
        if callbacks:
            raise TorchcapsError("callbacks watch a training in their own process: start the others by torchrun")
        return train_in_processes(run, world.processes, over)
    ranks = Ranks(make_fabric(config))
    forms = run.convolution_forms()
    with ranks.watched(run.path), contextlib.ExitStack() as held, flushed_denormals(), use_forms(forms):
        with ranks.refusing_together():
            if ranks.first:
                held.enter_context(run.locked())
                run.check_dataset()
        return train(run, config, ranks, forms, over, callbacks)


def train(
    run: RunFolder,
    config: RunConfig,
    ranks: Ranks,
    forms: dict[str, str],
    over: Callable[[], bool],
    callbacks: Sequence[Callback],
) -> Progress:
    """What every process does; see :func:`fit`. ``forms`` are those of the convolutions, see ``use_forms``."""
    fabric = ranks.fabric
    recorded, conditions = run.training_record(), describe_conditions(ranks.count)
    if ranks.first:
        if run.last.is_file():
            tell_conditions(recorded, conditions)
        remove_unfinished(run.path)
        remove_unfinished(run.last.parent)
    training, validation = training_sets(config)
    torch.manual_seed(config.seed)
    model = config.build_model(run.last if run.last.is_file() else None)
    if not run.last.is_file():
        sample = torch.arange(min(len(training), MOST_PREPARATION))
        model.prepare(seen_by(model, training.batch(sample).images))
    if ranks.count > 1:
        share_statistics(model)
    with_loss = Objective(model, config)
    objective = fabric.setup_module(with_loss)
    bare = make_optimizer(model, config)  # after the weights have come to their device, or were spread over several
    progress = load_checkpoint(run.last, model, bare) if run.last.is_file() else Progress()
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
    board = open_board(run.path, progress.step) if ranks.first else None
    metrics = Metrics(run.metrics_file, progress, board) if ranks.first else None
    watching = list(callbacks) if ranks.first else []
    if board is not None:
        few = validation.batch(torch.arange(min(SHOWN, len(validation)))).images
        watching.append(BoardFigures(board, seen_by(model, few)))
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at, recorded
        if not all_finite(model):
            ranks.refuse(f"the weights are no longer finite at step {progress.step}. {ADVICE} {run.path}")
        record = conditions | {"convolutions": ranks.union(forms)}
        if ranks.first and record != recorded:
            run.write_training_record(record)
            recorded = record
        save_checkpoint(run.last, model, bare, progress, write=ranks.first)
        ranks.wait()  # what one has written, all may rely on
        saved_at = time.monotonic()

    display = Display(f"{config.model} on {config.data}", progress.step, total, shown=ranks.first)
    with display, stop_requests() as stop:
        while True:
            due = progress.step % validate_every == 0 or progress.step >= total
            if due and progress.validated_at < progress.step:
                with gathered(with_loss):
                    accuracy = measure_together(ranks, model, validation)
                if accuracy > progress.best_accuracy:
                    progress.best_accuracy, progress.best_step = accuracy, progress.step
                    save_weights(run.best, model, write=ranks.first)
                line = make_line(progress, per_epoch, "validation", None, accuracy, optimizer.param_groups[0]["lr"])
                if metrics:
                    metrics.write(line)
                display.validated(line)
                progress.validated_at = progress.step
                save()
                model.eval()
                with gathered(with_loss), torch.no_grad():
                    for each in watching:
                        each.on_validation(line, model)
            if progress.step >= total or progress.best_accuracy >= enough:
                break

            began = time.perf_counter()
            seed_step(config.seed, progress.step, ranks.rank)
            rate = config.learning_rate * schedule(progress.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            indices = batch_indices(len(training), config.batch_size, config.seed, progress.step)
            count = len(indices)
            share = share_of(count, ranks.rank, ranks.count)
            batch = training.batch(indices[share.part])
            images = augment(batch.images, step_generator(config.seed, progress.step), part=share.part, of=count)
            images, labels, targets = fabric.to_device((images, batch.labels, batch.targets))

            objective.train()
            set_shared(model, share.copies == 1)
            loss, output = objective(images, labels, targets, progress.step / total)
            optimizer.zero_grad()
            # The mean over processes of what comes out is then the gradient of the whole batch's mean loss.
            fabric.backward(loss * (share.counted * ranks.count / count))
            right = int(correct(output.scores.detach(), labels).sum()) / share.copies
            loss_sum, correct_sum = ranks.total(loss.item() * share.counted, right)
            if trouble := find_trouble(loss_sum, model):
                save()  # the weights of before this step, which are good
                ranks.refuse(f"{trouble} at step {progress.step}, images {indices.tolist()}. {ADVICE} {run.path}")
            optimizer.step()
            with gathered(with_loss), torch.no_grad():
                model.after_step(once(output, share.copies > 1 and not ranks.first), labels)

            progress.step += 1
            progress.images += count
            progress.seen += count
            progress.loss_sum += loss_sum
            progress.correct_sum += round(correct_sum)
            progress.seconds += time.perf_counter() - began
            speed = progress.images / progress.seconds
            display.step(progress.loss_sum / progress.seen, progress.correct_sum / progress.seen, speed)
            for each in watching:
                each.on_step(make_line(progress, per_epoch, "train", loss_sum / count, correct_sum / count, rate))
            if progress.step % LINE_EVERY == 0 or progress.step == total:
                means = progress.loss_sum / progress.seen, progress.correct_sum / progress.seen
                if metrics:
                    metrics.write(make_line(progress, per_epoch, "train", *means, rate))
                progress.loss_sum, progress.correct_sum, progress.seen = 0.0, 0, 0
            asked, due = ranks.any(stop() or over(), time.monotonic() - saved_at >= 60 * config.save_minutes)
            if asked or due:
                save()
            if asked:
                raise Interrupted
    for each in watching:
        each.on_end(progress, model.eval())
    if metrics:
        metrics.close()
    return progress


def measure_together(ranks: Ranks, model: Model, images: ImageSet) -> float:
    """Accuracy on a set of images, each process having looked at its share."""
    share = share_of(len(images), ranks.rank, ranks.count)
    own = Subset(images, torch.arange(len(images))[share.part]) if ranks.count > 1 else images
    measured = measure(model, own, description="validating")
    return round(ranks.total(measured.accuracy * share.counted)[0]) / len(images)


def once(output: Output, repeated: bool) -> Output:
    """What a routing learns from: nothing, where another process has the same images."""
    return output._replace(votes=torch.zeros_like(output.votes)) if repeated and output.votes is not None else output
