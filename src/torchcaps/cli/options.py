"""Options that several commands share: their types, shell completion, and how they combine with a settings file.

Completion of names needs the registries, which import torch. That takes seconds, so the names are cached together with
a stamp of the source files that they come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps import __version__
from torchcaps.cli import console
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json

if TYPE_CHECKING:
    from torchcaps.train import RunConfig

SOURCE = Path(__file__).parents[1]
PACKAGES = ("attacks", "data", "data/datasets", "models", "pretrained", "reproduce/specs", "routing")  # that register


def known_names(kind: str) -> list[str]:
    """All names of a kind, from the cache if it is up to date."""
    cache, stamp = cache_folder() / "names.json", source_stamp()
    with contextlib.suppress(TorchcapsError, TypeError, KeyError):
        cached = read_json(cache)
        if cached["mark"] == stamp:
            return list(cached["names"][kind])
    names = registered_names()
    with contextlib.suppress(TorchcapsError):  # a cache that cannot be written only costs time
        write_json(cache, {"mark": stamp, "names": names})
    return names[kind]


def registered_names() -> dict[str, list[str]]:
    """All names of every kind, from the registries."""
    from torchcaps.attacks import attacks
    from torchcaps.data import datasets
    from torchcaps.models import models
    from torchcaps.pretrained import list_pretrained
    from torchcaps.routing import routings

    return {
        "attack": attacks.names(),
        "dataset": [*datasets.names(), "images:"],
        "model": models.names(),
        "paper": [*sorted(path.stem for path in (SOURCE / "reproduce" / "specs").glob("*.yaml")), "all"],
        "routing": routings.names(),
        "weights": [card.name for card in list_pretrained()],
    }


def source_stamp() -> str:
    """Version and newest modification time of the files that may register a name."""
    newest = max(path.stat().st_mtime_ns for package in PACKAGES for path in (SOURCE / package).iterdir())
    return f"{__version__} {newest}"


def complete(kind: str, *, prefix: str = "") -> Callable[[str], list[str]]:
    """A completer for one name of a kind, after a prefix such as ``routing=``."""

    def completions(incomplete: str) -> list[str]:
        return matching((f"{prefix}{name}" for name in known_names(kind)), incomplete)

    return completions


def complete_list(kind: str) -> Callable[[str], list[str]]:
    """A completer for a comma-separated list: it completes the last name."""

    def completions(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        return [f"{given}{comma}{name}" for name in matching(known_names(kind), last)]

    return completions


def complete_run(incomplete: str) -> list[str]:
    """Complete names of shipped weights and directories."""
    typed = Path(incomplete)
    parent = typed if incomplete.endswith(("/", "\\")) else typed.parent
    folders = (f"{path.as_posix()}/" for path in sorted(parent.iterdir()) if path.is_dir()) if parent.is_dir() else ()
    return [*matching(known_names("weights"), incomplete), *matching(folders, incomplete)]


def matching(names: Iterable[str], typed: str) -> list[str]:
    """The names that start with what was typed."""
    return [name for name in names if name.startswith(typed)]


Data = Annotated[
    str | None,
    typer.Option(help="Dataset; see 'torchcaps datasets'.  [default: mnist]", autocompletion=complete("dataset")),
]
Images = Annotated[
    str | None,
    typer.Option(help="Your own images instead: a folder with one subfolder per class, or a CSV file."),
]
Size = Annotated[str | None, typer.Option(help="Model size, 'laptop' or 'paper'.  [default: laptop]")]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs.  [default: 5]")]
Steps = Annotated[int | None, typer.Option(help="Maximum number of training steps.  [default: no limit]")]
StopAtAccuracy = Annotated[
    float | None,
    typer.Option(help="Stop when the validation accuracy reaches this value, e.g. 0.985.  [default: never]"),
]
TrainImages = Annotated[int | None, typer.Option(help="Use only this many training images.  [default: all]")]
TestImages = Annotated[int | None, typer.Option(help="Use only this many test images.  [default: all]")]
BatchSize = Annotated[int | None, typer.Option(help="Images per step.  [default: from the paper]")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate.  [default: from the paper]")]
ClipNorm = Annotated[float | None, typer.Option(help="Clip the norm of the gradient.  [default: no]")]
Seed = Annotated[int | None, typer.Option(help="Random seed.  [default: 0]")]
Augmentation = Annotated[
    str | None,
    typer.Option(
        "--augment",
        "--augmentation",
        help="'light', 'strong', 'none', or transforms such as 'shift=2,rotate=10'.  [default: the dataset's]",
    ),
]
Device = Annotated[str | None, typer.Option(help="'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'.  [default: auto]")]
Precision = Annotated[str | None, typer.Option(help="'auto', '32-true', 'bf16-mixed' or '16-mixed'.  [default: auto]")]
Devices = Annotated[int | None, typer.Option(help="Processes per node, which share every batch.  [default: 1]")]
Nodes = Annotated[int | None, typer.Option(help="Number of nodes, started by srun or torchrun.  [default: 1]")]
Strategy = Annotated[str | None, typer.Option(help="'ddp', or 'fsdp' to shard the weights.  [default: ddp]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Config = Annotated[Path | None, typer.Option(help="YAML file with settings; flags take precedence.")]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of the model or its training, e.g. 'routing=uniform'; see 'torchcaps models MODEL'. Repeatable.",
        autocompletion=complete("routing", prefix="routing="),
    ),
]


def load_plugins(paths: list[Path] | None) -> list[Path] | None:
    """Import the plugin files, so that what they register can be used by name."""
    from torchcaps.plugins import load_plugin

    for path in paths or []:
        load_plugin(path)
    return paths


Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        callback=load_plugins,
        help="A Python file with your own routing, model, loss, attack or dataset.",
    ),
]


def split_names(text: str | None) -> list[str]:
    """The names in a comma-separated list.

    >>> split_names("fgsm, pgd,"), split_names(None)
    (['fgsm', 'pgd'], [])
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def chosen_names(names: Iterable[str] | None) -> list[str]:
    """The given names; none, which stands for all, if the word "all" is given as help texts print it.

    >>> chosen_names(["table1"]), chosen_names(["all"]), chosen_names(None)
    (['table1'], [], [])
    """
    found = list(names or ())
    return [] if found == ["all"] else found


def dataset_name(data: str | None, images: str | None) -> str | None:
    """The dataset's name, from --data or --images."""
    if data and images:
        raise TorchcapsError(f"--data {data} and --images {images} both name a dataset: use only one of them")
    return f"images:{images}" if images else data


def sized_like(data: str, image_shape: tuple[int, int, int]) -> str:
    """The name of a dataset; a user's own images get this image shape, unless their size was given."""
    from torchcaps.data.datasets.image_folder import own_folder, parse_name

    channels, height, width = image_shape
    if own_folder(data) is None or channels not in (1, 3):
        return data
    chosen = parse_name(data.partition(":")[2])[1]
    size = "" if "size" in chosen else f",size={height}x{width}" if height != width else f",size={height}"
    return data + size + ("" if "grey" in chosen else f",grey={int(channels == 1)}")


def describe_own_images(data: str, *, quiet: bool, like: str | None = None) -> None:
    """Print class counts and warnings for a user's own images before training; nothing for a known dataset.

    ``like`` is the trained network that determines the size of the images.
    """
    from torchcaps.compare.own_images import is_own_images, summarize_images

    if not is_own_images(data):
        return
    summary = summarize_images(data, f"as for {like}" if like else "as requested")
    if not quiet:
        console.print_table("Images", ("class", "training", "test"), summary.rows, numbers=2)
        console.out.print(summary.text, soft_wrap=True)
    for warning in summary.warnings:
        console.warn(warning)


def show_backbone(config: RunConfig, *, quiet: bool, prefix: str = "--set ") -> None:
    """Print how large images are reduced, if they are; ``prefix`` is what a command has before 'backbone=...'."""
    from torchcaps.models.backbone import describe_backbone

    text = describe_backbone(str(config.options.get("backbone", "none")), config.image_shape)
    if text and not quiet:
        console.out.print(
            f"Backbone {text}. Change it with {prefix}backbone=none, strided or residual.", soft_wrap=True
        )


Balance = Annotated[
    str | None,
    typer.Option(
        help="For classes of different sizes: 'weights' weighs the loss by class, 'sample' shows all classes equally "
        "often.  [default: neither]"
    ),
]


def write_contact_sheet(config: RunConfig, target: Path, *, quiet: bool) -> None:
    """Draw a user's own images as the network will see them, and as they are in training; otherwise nothing."""
    data = config.data
    from torchcaps.compare.own_images import is_own_images, preview_sheet
    from torchcaps.files import atomic_path

    if not is_own_images(data):
        return
    with atomic_path(target) as temporary:
        preview_sheet(data).save(temporary, format="PNG")
    if not quiet:
        console.out.print(f"Contact sheet of the network's input: {target}", soft_wrap=True)
    if config.augmentation:
        augmented = target.with_name("augmented.png")
        with atomic_path(augmented) as temporary:
            preview_sheet(data, config.augmentation).save(temporary, format="PNG")
        if not quiet:
            console.out.print(f"The same images augmented as in training: {augmented}", soft_wrap=True)
