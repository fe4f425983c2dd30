"""torchcaps compare"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli import options as o
from torchcaps.cli.options import complete
from torchcaps.cli.settings import merge_nested, merge_settings, parse_settings
from torchcaps.errors import TorchcapsError

# Parameters that are not settings of the runs.
NOT_SETTINGS = ("models", "images", "seeds", "match", "robustness", "plugin", "config", "out", "json")


def compare_command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Model names, see 'torchcaps models'; with settings of the model or its training: "
            "'capsnet:routing=dynamic,routing_options.iterations=2,learning_rate=0.002'.  [default with --images: four "
            "models that train in minutes]",
            autocompletion=complete("model"),
        ),
    ] = None,
    data: o.Data = None,
    images: o.Images = None,
    size: o.Size = None,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    train_images: o.TrainImages = None,
    test_images: o.TestImages = None,
    batch_size: o.BatchSize = None,
    augmentation: o.Augmentation = None,
    balance: o.Balance = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds per model.", min=1)] = 1,
    match: Annotated[
        str | None,
        typer.Option(
            help="Stop every model at this validation accuracy, e.g. 0.985; or 'familiar': at the first model's "
            "accuracy on familiar viewpoints."
        ),
    ] = None,
    robustness: Annotated[bool, typer.Option(help="Also run short affine and adversarial tests.")] = True,
    device: o.Device = None,
    precision: o.Precision = None,
    plugin: o.Plugin = None,
    config: o.Config = None,
    out: Annotated[
        Path | None, typer.Option(help="Output directory; an unfinished comparison in it is resumed.")
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Train several models on equal terms and report.

    All models get the same data, budget and seeds. Prints a table and writes an HTML report.
    """
    data = o.dataset_name(data, images)
    flags = {key: value for key, value in locals().items() if key not in NOT_SETTINGS}
    from torchcaps.compare import ComparisonRun, run_comparison, write_report
    from torchcaps.compare.own_images import MODELS, default_epochs, is_own_images
    from torchcaps.compare.table import COLUMNS, SUSPECT_MARK, difference_sentences, robustness_columns, table_cells
    from torchcaps.data.datasets.image_folder import display_name
    from torchcaps.evaluate.viewpoint import check_viewpoints
    from torchcaps.files import file_name
    from torchcaps.train import resolve, training_splits

    settings = merge_settings(config, None, flags)
    if is_own_images(settings.get("data", "")):
        models = models or list(MODELS)
        settings.setdefault("epochs", default_epochs(settings["data"]))
        o.describe_own_images(settings["data"], quiet=json)
    if not models:
        raise TorchcapsError("no model was given: choose from those that 'torchcaps models' lists")
    if len(set(models)) < len(models):
        raise TorchcapsError(f"a model is named twice: {' '.join(models)}")
    if match == "familiar":
        check_viewpoints(settings.get("data", "mnist"))
    elif match is not None:
        settings["stop_at_accuracy"] = match
    entries = []
    for label in models:
        name, _, text = label.partition(":")
        own, options = parse_settings(name, text)
        own |= {"model": name, "options": merge_nested(settings.get("options", {}), options)}
        configs = [resolve(**settings | own | {"seed": seed}) for seed in range(seeds)]
        configs[0].check_model()  # errors in the settings or the data should come before a directory is created
        entries += [ComparisonRun(label, config) for config in configs]
    first = entries[0].config
    o.show_backbone(first, quiet=json, prefix=f"{first.model}:")
    training_splits(first)
    path = out or Path("runs") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-compare-{file_name(display_name(first.data))}"
    o.write_contact_sheet(first, path / "pictures.png", quiet=json)
    with console.resumable(f"the same command with --out {path}"):
        comparison = run_comparison(
            entries,
            path,
            robustness=robustness,
            match_first=match == "familiar",
            announce=partial(console.err.print, soft_wrap=True),
        )
    report = write_report(comparison)
    if json:
        console.print_json(comparison.results)
        return
    title = f"{display_name(first.data)}, {first.size} size, {seeds} seed{'s' if seeds > 1 else ''}"
    robust = robustness_columns(list(comparison.results.values()))
    for heading, chosen in ((title, COLUMNS), ("Robustness (short tests)", robust)):
        rows = [(name, *table_cells(chosen, results)) for name, results in comparison.results.items()]
        if chosen:
            titles = ("model", *(column.title for column in chosen))
            console.print_table(heading, titles, rows, numbers=len(chosen))
    for sentence in difference_sentences(comparison.results):
        console.out.print(sentence, soft_wrap=True)
    if any(SUSPECT_MARK in cell for row in rows for cell in row):
        console.out.print(f"{SUSPECT_MARK} a sanity check failed; see the report")
    console.out.print(f"Report: {report}")
