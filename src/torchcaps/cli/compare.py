"""torchcaps compare"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli import options as s
from torchcaps.cli.completion import complete
from torchcaps.errors import TorchcapsError

# What is not a setting of the runs.
OWN = ("models", "images", "seeds", "match", "robustness", "plugin", "config", "out", "json")


def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of models, see 'torchcaps models'; with settings: 'capsnet:routing=uniform'.  [default for "
            "--images: four that train in minutes]",
            autocompletion=complete("model"),
        ),
    ] = None,
    data: s.Data = None,
    images: s.Images = None,
    size: s.Size = None,
    epochs: s.Epochs = None,
    steps: s.Steps = None,
    train_images: s.TrainImages = None,
    test_images: s.TestImages = None,
    batch_size: s.BatchSize = None,
    augmentation: s.Augment = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each model is trained with.", min=1)] = 1,
    match: Annotated[
        str | None,
        typer.Option(
            help="Stop every model at this share of the validation images, such as 0.985; or 'familiar': where it is "
            "as good from familiar sides as the first model."
        ),
    ] = None,
    robustness: Annotated[bool, typer.Option(help="Also measure affine change and attacks, quickly.")] = True,
    device: s.Device = None,
    precision: s.Precision = None,
    plugin: s.Plugin = None,
    config: s.Config = None,
    out: Annotated[Path | None, typer.Option(help="Folder; a started comparison in it goes on.")] = None,
    json: s.AsJson = False,
) -> None:
    """Train several models under one budget; print one table and write one report."""
    data = s.data_of(data, images)
    flags = {key: value for key, value in locals().items() if key not in OWN}
    from torchcaps.compare import ComparisonRun, run_comparison, write_report
    from torchcaps.compare.own_images import MODELS, default_epochs, display_name, is_own_images
    from torchcaps.compare.table import COLUMNS, SUSPECT_MARK, robustness_columns, table_cells
    from torchcaps.evaluate.viewpoint import check_viewpoints
    from torchcaps.files import file_name
    from torchcaps.train import resolve, training_splits

    settings = s.merge(config, None, flags)
    if is_own_images(settings.get("data", "")):
        models = models or list(MODELS)
        settings.setdefault("epochs", default_epochs(settings["data"]))
        s.introduce(settings["data"], quiet=json)
    if not models:
        raise TorchcapsError("no model was named: give some of those that 'torchcaps models' lists")
    if len(set(models)) < len(models):
        raise TorchcapsError(f"a model is named twice: {' '.join(models)}")
    if match == "familiar":
        check_viewpoints(settings.get("data", "mnist"))
    elif match is not None:
        settings["stop_at_accuracy"] = match
    entries = []
    for label in models:
        name, _, text = label.partition(":")
        options = {**settings.get("options", {}), **dict(map(s.parse_option, filter(None, text.split(","))))}
        configs = [resolve(**settings | {"model": name, "options": options, "seed": seed}) for seed in range(seeds)]
        configs[0].build_model()  # what cannot be built or fetched should fail before a folder is made
        entries += [ComparisonRun(label, config) for config in configs]
    first = entries[0].config
    training_splits(first)
    path = out or Path("runs") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-compare-{file_name(display_name(first.data))}"
    s.write_sheet(first.data, path / "pictures.png", quiet=json)
    with console.resumable(f"the same command with --out {path}"):
        comparison = run_comparison(
            entries, path, robustness=robustness, match_first=match == "familiar", announce=console.err.print
        )
    report = write_report(comparison)
    if json:
        console.print_json(comparison.results)
        return
    title = f"{display_name(first.data)}, {first.size} size, {seeds} seed{'s' if seeds > 1 else ''}"
    robust = robustness_columns(list(comparison.results.values()))
    for heading, chosen in ((title, COLUMNS), ("Robustness, a quick look", robust)):
        rows = [(name, *table_cells(chosen, results)) for name, results in comparison.results.items()]
        if chosen:
            titles = ("model", *(column.title for column in chosen))
            console.print_table(heading, titles, rows, numbers=len(chosen))
    if any(SUSPECT_MARK in cell for row in rows for cell in row):
        console.out.print(f"{SUSPECT_MARK} a sanity check failed: the report says which")
    console.out.print(f"Report: {report}")
