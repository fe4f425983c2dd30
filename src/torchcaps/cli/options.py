"""The flags that train and compare share, and how flags and a settings file become one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete
from torchcaps.errors import TorchcapsError

Data = Annotated[
    str | None,
    typer.Option(help="Dataset, see 'torchcaps datasets'.  [default: mnist]", autocompletion=complete("dataset")),
]
Images = Annotated[
    str | None,
    typer.Option(help="Your own pictures instead: a folder with a subfolder for each class, or a CSV file."),
]
Size = Annotated[str | None, typer.Option(help="'laptop' or 'paper'.  [default: laptop]")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training images.  [default: 5]")]
Steps = Annotated[int | None, typer.Option(help="Stop after this many steps at most.")]
StopAtAccuracy = Annotated[
    float | None, typer.Option(help="Stop as soon as this share of the validation images is right, such as 0.985.")
]
TrainImages = Annotated[int | None, typer.Option(help="Use only so many training images.")]
TestImages = Annotated[int | None, typer.Option(help="Use only so many test images.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per step.  [default: the paper's]")]
LearningRate = Annotated[float | None, typer.Option(help="[default: the paper's]")]
Augment = Annotated[
    str | None, typer.Option("--augmentation", help="Such as 'shift=2'; '' for none.  [default: the dataset's]")
]
Device = Annotated[str | None, typer.Option(help="'auto', 'cpu', 'cuda', 'cuda:1', 'mps'.  [default: auto]")]
Precision = Annotated[str | None, typer.Option(help="'auto', '32-true', 'bf16-mixed', '16-mixed'.  [default: auto]")]
Devices = Annotated[int | None, typer.Option(help="Processes on each machine that share every batch.  [default: 1]")]
Nodes = Annotated[int | None, typer.Option(help="Machines; started by srun or torchrun.  [default: 1]")]
Strategy = Annotated[str | None, typer.Option(help="'ddp', or 'fsdp' to spread the weights.  [default: ddp]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Config = Annotated[Path | None, typer.Option(help="Settings from a YAML file; flags come before it.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting of the model, such as 'routing=uniform'; may be repeated.",
        autocompletion=complete("routing", before="routing="),
    ),
]


def load_plugins(paths: list[Path] | None) -> list[Path] | None:
    """Run the files that the user named, so that what they register can be used by name."""
    from torchcaps.plugins import load_plugin

    for path in paths or []:
        load_plugin(path)
    return paths


Plugin = Annotated[
    list[Path] | None,
    typer.Option(callback=load_plugins, help="A Python file of yours that registers a routing, model or loss."),
]


def merge(config: Path | None, options: list[str] | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Settings from the file, overruled by flags."""
    from torchcaps.train import read_settings

    settings = read_settings(config) if config else {}
    settings |= {key: value for key, value in flags.items() if value is not None}
    if options:
        settings["options"] = {**settings.get("options", {}), **dict(map(parse_option, options))}
    return settings


def data_of(data: str | None, images: str | None) -> str | None:
    """The dataset's name, whichever of the two flags gave it."""
    if data and images:
        raise TorchcapsError(f"--data {data} and --images {images} both name what to train on: leave one out")
    return f"images:{images}" if images else data


def introduce(data: str, *, quiet: bool) -> None:
    """Say which pictures a user's own are, before anything is trained on them; of a known dataset, nothing."""
    from torchcaps.compare.own_images import is_own_images, summarize_images

    if not is_own_images(data):
        return
    summary = summarize_images(data)
    if not quiet:
        console.print_table("Pictures", ("class", "training", "test"), summary.rows, numbers=2)
        console.out.print(summary.text, soft_wrap=True)
    for warning in summary.warnings:
        console.warn(warning)


def write_sheet(data: str, target: Path, *, quiet: bool) -> None:
    """Draw a user's own pictures as the network will see them, before it is trained; of a known dataset, nothing."""
    from torchcaps.compare.own_images import is_own_images, preview_sheet
    from torchcaps.files import atomic_path

    if not is_own_images(data):
        return
    with atomic_path(target) as temporary:
        preview_sheet(data).save(temporary, format="PNG")
    if not quiet:
        console.out.print(f"Sheet of the pictures as the network sees them: {target}", soft_wrap=True)


def parse_option(option: str) -> tuple[str, Any]:
    """From NAME=VALUE to the name and the value as YAML reads it: a number, a word, a list."""
    from torchcaps.files import parse_yaml

    name, sign, value = option.partition("=")
    if not sign:
        raise TorchcapsError(f"'{option}' should be written NAME=VALUE, such as routing=uniform")
    return name, parse_yaml(value, f"the value of '{option}'")
