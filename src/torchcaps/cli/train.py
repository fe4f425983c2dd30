"""torchcaps train and tune-rate"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli import options as o
from torchcaps.cli.options import complete
from torchcaps.cli.settings import merge_settings
from torchcaps.errors import TorchcapsError

# Parameters that are not settings of the run.
NOT_SETTINGS = ("images", "options", "plugin", "config", "runs", "out", "resume", "start_from", "json")
CHANGEABLE = ("device", "devices", "nodes", "strategy", "epochs", "steps")  # settings that a resumed run may change


def train_command(
    model: Annotated[
        str | None,
        typer.Argument(help="Model name; see 'torchcaps models'.", autocompletion=complete("model")),
    ] = None,
    data: o.Data = None,
    images: o.Images = None,
    size: o.Size = None,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    stop_at_accuracy: o.StopAtAccuracy = None,
    train_images: o.TrainImages = None,
    test_images: o.TestImages = None,
    batch_size: o.BatchSize = None,
    learning_rate: o.LearningRate = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss function; see 'torchcaps losses'.  [default: from the paper]")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate schedule, e.g. 'step:0.5:1000' or 'one-cycle:0.004:0.1'; see 'torchcaps schedules'."
            "  [default: from the paper]"
        ),
    ] = None,
    clip_norm: o.ClipNorm = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.  [default: the optimizer's]")] = None,
    adversarial: Annotated[
        str | None,
        typer.Option(help="Adversarial training, 'pgd:EPSILON:STEPS' or 'trades:EPSILON:STEPS:BETA'.  [default: none]"),
    ] = None,
    augmentation: o.Augmentation = None,
    balance: o.Balance = None,
    seed: o.Seed = None,
    save_minutes: Annotated[float | None, typer.Option(help="Minutes between checkpoints.  [default: 1]")] = None,
    device: o.Device = None,
    precision: o.Precision = None,
    devices: o.Devices = None,
    nodes: o.Nodes = None,
    strategy: o.Strategy = None,
    options: o.ModelOptions = None,
    plugin: o.Plugin = None,
    config: o.Config = None,
    runs: Annotated[Path, typer.Option(help="Parent directory of new runs.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="Run directory.  [default: a new one in --runs]")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this directory.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Fine-tune: start with the weights of this run, or a name from 'torchcaps weights'. Model, size and "
            "options are the same by default; the class capsules are reinitialized.",
            autocompletion=o.complete_run,
        ),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Train a model and evaluate its best checkpoint.

    The checkpoint is selected on a validation split and evaluated on the test set. Everything is written into a run
    directory; --resume continues an interrupted run.
    """
    data = o.dataset_name(data, images)
    flags = {key: value for key, value in locals().items() if key not in NOT_SETTINGS}
    from torchcaps.train import (
        change_settings,
        fit_run,
        is_main_process,
        move_images,
        new_run,
        new_run_path,
        open_run,
        resolve,
        training_splits,
    )
    from torchcaps.train.run_folder import check_extension

    if resume:
        given = {key: value for key, value in flags.items() if value is not None and not (images and key == "data")}
        fixed = [f"--{key.replace('_', '-')}" for key in given if key not in CHANGEABLE]
        if fixed or config or options:
            raise TorchcapsError(
                f"a resumed run keeps its settings: leave out {', '.join(fixed) or '--config and --set'}"
            )
        opened = move_images(open_run(resume), Path(images)) if images else open_run(resume)
        if {"epochs", "steps"} & given.keys():
            check_extension(opened, **{key: given[key] for key in ("epochs", "steps") if key in given})
        run, splits = change_settings(opened, **given), None
    else:
        merged = merge_settings(config, options, flags)
        source = None
        if start_from:
            from torchcaps.pretrained.loading import load_trained
            from torchcaps.pretrained.transfer import settings_like

            source = load_trained(start_from)
            same = settings_like(source)
            merged = same | merged | {"options": same["options"] | merged.get("options", {}), "start_from": source.name}
            merged["data"] = o.sized_like(merged.get("data", "mnist"), source.config.image_shape)
        settings = resolve(**merged)
        o.describe_own_images(settings.data, quiet=json, like=source.name if source else None)
        settings.check_model()  # errors in the settings or the data should come before a directory is created
        o.show_backbone(settings, quiet=json)
        splits = training_splits(settings)
        run = new_run(settings, out or new_run_path(runs, settings))
        if source is not None:
            from torchcaps.pretrained.transfer import start_from as write_initial

            said = write_initial(run, source).describe(source.name)
            if not json:
                console.out.print(f"Fine-tuning: {said}.", soft_wrap=True)
        if is_main_process():
            o.write_contact_sheet(settings, run.output("pictures.png"), quiet=json)
    with console.resumable(f"torchcaps train --resume {run.path}"):
        fit_run(run, splits=splits)
    if not is_main_process():
        return
    from torchcaps.data.datasets.image_folder import display_name
    from torchcaps.evaluate import evaluate_run

    result = evaluate_run(run)
    if json:
        console.print_json(result | {"run": str(run.path)})
        return
    rows = [
        ("parameters", f"{result['parameters']:,}"),
        ("training time", f"{result['training_seconds']:.1f} s"),
        ("images per second", f"{result['images_per_second']:,.0f}"),
        ("validation accuracy", f"{result['validation_accuracy']:.2%}"),
        (f"test accuracy ({result['test_images']:,} images)", f"{result['test_accuracy']:.2%}"),
    ]
    console.print_table(
        f"{result['model']} ({result['size']}) on {display_name(result['data'])}", ("", ""), rows, numbers=1
    )
    console.out.print(f"Run: {run.path}")


def tune_rate_command(
    model: Annotated[str, typer.Argument(help="Model name; see 'torchcaps models'.", autocompletion=complete("model"))],
    data: o.Data = None,
    images: o.Images = None,
    size: o.Size = None,
    steps: Annotated[int, typer.Option(help="Number of training steps.")] = 100,
    batch_size: o.BatchSize = None,
    augmentation: o.Augmentation = None,
    clip_norm: o.ClipNorm = None,
    seed: o.Seed = None,
    device: o.Device = None,
    options: o.ModelOptions = None,
    plugin: o.Plugin = None,
    config: o.Config = None,
    out: Annotated[Path, typer.Option(help="Plot to write, PNG or SVG.")] = Path("tune-rate.png"),
    json: o.AsJson = False,
) -> None:
    """Find a learning rate: a range test with a plot.

    Trains a new model for a few steps while the learning rate grows from 1e-5 to 1, and suggests the peak of a
    one-cycle schedule. Takes seconds to a few minutes.
    """
    data = o.dataset_name(data, images)
    flags = {key: value for key, value in locals().items() if key not in (*NOT_SETTINGS, "steps")}
    if out.suffix not in (".png", ".svg"):
        raise TorchcapsError(f"--out should be a file name that ends in .png or .svg, got '{out}'")
    from torchcaps.data.datasets.image_folder import display_name
    from torchcaps.environment import describe_environment
    from torchcaps.train import resolve
    from torchcaps.train.tune_rate import draw_rate_test, tune_rate

    settings = resolve(**merge_settings(config, options, flags))
    o.describe_own_images(settings.data, quiet=json)
    settings.check_model()
    found = tune_rate(settings, steps=steps)
    title = f"{settings.model} ({settings.size}) on {display_name(settings.data)}"
    draw_rate_test(found, title, out)
    if json:
        result = {"settings": settings.model_dump(mode="json"), "schedule": found.schedule, **asdict(found)}
        console.print_json(result | {"plot": str(out), "environment": describe_environment()})
        return
    console.out.print(title, soft_wrap=True)  # the table is too narrow for it
    rows = [(f"{rate:.1e}", f"{loss:.4g}") for rate, loss in found.rows()]
    console.print_table("", ("learning rate", "loss"), rows, numbers=2)
    if found.diverged_at:
        console.out.print(f"Diverged at a learning rate of {found.diverged_at:.1e}.")
    console.out.print(f"Plot: {out}", soft_wrap=True)
    console.out.print(f"Suggested: --schedule {found.schedule}", soft_wrap=True)
