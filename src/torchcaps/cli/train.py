"""torchcaps train"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli import options as s
from torchcaps.cli.completion import complete
from torchcaps.errors import TorchcapsError

OWN = ("images", "options", "plugin", "config", "runs", "out", "resume", "json")  # what is not a setting of the run
MAY_CHANGE = ("device", "devices", "nodes", "strategy")  # where a run computes, which a resumed one may choose anew


def train(
    model: Annotated[
        str | None,
        typer.Argument(help="Name of a model, see 'torchcaps models'.", autocompletion=complete("model")),
    ] = None,
    data: s.Data = None,
    images: s.Images = None,
    size: s.Size = None,
    epochs: s.Epochs = None,
    steps: s.Steps = None,
    stop_at_accuracy: s.StopAtAccuracy = None,
    train_images: s.TrainImages = None,
    test_images: s.TestImages = None,
    batch_size: s.BatchSize = None,
    learning_rate: s.LearningRate = None,
    loss: Annotated[str | None, typer.Option(help="[default: the paper's]")] = None,
    schedule: Annotated[str | None, typer.Option(help="Such as 'step:0.5:1000'.  [default: the paper's]")] = None,
    augmentation: s.Augment = None,
    seed: Annotated[int | None, typer.Option(help="[default: 0]")] = None,
    save_minutes: Annotated[float | None, typer.Option(help="Minutes between two saves.  [default: 1]")] = None,
    device: s.Device = None,
    precision: s.Precision = None,
    devices: s.Devices = None,
    nodes: s.Nodes = None,
    strategy: s.Strategy = None,
    options: s.Options = None,
    plugin: s.Plugin = None,
    config: s.Config = None,
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="This run's own folder.  [default: a new one in --runs]")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    json: s.AsJson = False,
) -> None:
    """Train a model, test the checkpoint that validation chose, and keep everything in a run folder."""
    data = s.data_of(data, images)
    flags = {key: value for key, value in locals().items() if key not in OWN}
    from torchcaps.evaluate import evaluate_run
    from torchcaps.train import (
        change_devices,
        fit_run,
        is_main_process,
        new_run,
        new_run_path,
        open_run,
        resolve,
        training_splits,
    )

    if resume:
        given = {key: value for key, value in flags.items() if value is not None}
        kept = [f"--{key.replace('_', '-')}" for key in given if key not in MAY_CHANGE]
        if kept or config or options:
            raise TorchcapsError(
                f"a resumed run keeps its settings: leave out {', '.join(kept) or '--config and --set'}"
            )
        run, splits = change_devices(open_run(resume), **given), None
    else:
        settings = resolve(**s.merge(config, options, flags))
        s.introduce(settings.data, quiet=json)
        settings.check_model()  # a model or dataset that does not work should fail before a directory is created
        splits = training_splits(settings)
        run = new_run(settings, out or new_run_path(runs, settings))
        if is_main_process():
            s.write_sheet(settings.data, run.output("pictures.png"), quiet=json)
    with console.resumable(f"torchcaps train --resume {run.path}"):
        fit_run(run, splits=splits)
    if not is_main_process():
        return
    result = evaluate_run(run)
    if json:
        console.print_json(result | {"run": str(run.path)})
        return
    rows = [
        ("parameters", f"{result['parameters']:,}"),
        ("training", f"{result['training_seconds']:.1f} s"),
        ("images per second", f"{result['images_per_second']:,.0f}"),
        ("validation accuracy", f"{result['validation_accuracy']:.2%}"),
        (f"test accuracy ({result['test_images']:,} images)", f"{result['test_accuracy']:.2%}"),
    ]
    console.print_table(f"{result['model']} ({result['size']}) on {result['data']}", ("", ""), rows, numbers=1)
    console.out.print(f"Run: {run.path}")
