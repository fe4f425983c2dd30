"""torchcaps datasets, and torchcaps data list, get, verify and preview"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, chosen_names, complete
from torchcaps.errors import TorchcapsError

data_app = typer.Typer(help="Download, verify and preview datasets.", no_args_is_help=True)


def short_count(count: int) -> str:
    """A count with a unit.

    >>> short_count(900), short_count(8100), short_count(60_000_000)
    ('900', '8.1k', '60M')
    """
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)


def datasets_command(plugin: Plugin = None, json: AsJson = False) -> None:
    """List datasets with image counts and shapes."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import dataset_status

    if json:
        fields = (
            "name",
            "description",
            "shape",
            "splits",
            "class_names",
            "licence",
            "citation",
            "augmentation",
            "crop",
        )
        rows = [
            {field: getattr(record, field) for field in fields} | {"state": dataset_status(record).state}
            for record in datasets
        ]
        console.print_json(rows)
        return
    table = [
        (
            record.name,
            dataset_status(record).state,
            " + ".join(map(short_count, record.splits.values())),
            "x".join(map(str, record.shape)),
        )
        for record in datasets
    ]
    table += [(f"{family}:FOLDER", "your images", "", "") for family in datasets.families]
    console.print_table("Datasets", ("name", "state", "images", "shape"), table, numbers=2)


@data_app.command("list")
def list_command(json: AsJson = False) -> None:
    """List dataset files with location and size."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import dataset_status

    statuses = [(record.name, dataset_status(record)) for record in datasets]
    if json:
        console.print_json(
            [
                {"name": name, "state": status.state, "folder": str(status.folder or ""), "bytes": status.size}
                for name, status in statuses
            ]
        )
        return
    rows = [
        (name, status.state, str(status.folder or ""), f"{status.size / 1e6:.1f}" if status.size else "")
        for name, status in statuses
    ]
    console.print_table("Dataset files", ("name", "state", "folder", "MB"), rows, numbers=1)


@data_app.command("get")
def get_command(
    names: Annotated[
        list[str], typer.Argument(help="Datasets; see 'torchcaps datasets'.", autocompletion=complete("dataset"))
    ],
) -> None:
    """Download and verify datasets."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import download_dataset

    for record in [datasets.get(name) for name in names]:  # refuse an unknown name before any download
        console.out.print(f"{record.name} is complete: {download_dataset(record)}", soft_wrap=True)


@data_app.command("verify")
def verify_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Datasets.  [default: all that are present]", autocompletion=complete("dataset")),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare dataset files with their checksums."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import HERE, dataset_status, verify_dataset

    # By default each folder once: several datasets may share the same files.
    here = {
        record.folder or record.name: record
        for record in reversed(list(datasets))
        if dataset_status(record).state == HERE
    }
    chosen = [datasets.get(name) for name in chosen_names(names)] or list(reversed(here.values()))
    found: dict[str, list[str]] = {}
    for record in chosen:
        found[record.name] = verify_dataset(record)
        for problem in found[record.name]:
            console.err.print(problem, soft_wrap=True)
        if not found[record.name] and not json:
            console.out.print(
                f"{record.name} is intact" if record.files else f"{record.name} is generated and has no files"
            )
    if json:
        console.print_json([{"name": name, "problems": problems} for name, problems in found.items()])
    bad = sum(bool(problems) for problems in found.values())
    if bad:
        raise TorchcapsError(
            f"{bad} of {len(chosen)} datasets are damaged: delete the files listed above and download them again with "
            "'torchcaps data get'"
        )


@data_app.command("preview")
def preview_command(
    name: Annotated[str, typer.Argument(help="Dataset; see 'torchcaps datasets'.", autocompletion=complete("dataset"))],
    out: Annotated[Path | None, typer.Option(help="PNG file to write.  [default: preview-NAME.png]")] = None,
    split: Annotated[str, typer.Option(help="Split of the dataset.")] = "train",
    plugin: Plugin = None,
) -> None:
    """Draw a contact sheet of a dataset as PNG."""
    from torchcaps.data import load_dataset
    from torchcaps.data.preview import contact_sheet
    from torchcaps.files import atomic_path

    images = load_dataset(name, split)
    sheet = contact_sheet(images, f"{name}, {split}: {len(images):,} images of {'x'.join(map(str, images.shape))}")
    target = out or Path(f"preview-{name.partition(':')[0]}.png")
    with atomic_path(target) as temporary:
        sheet.save(temporary, format="PNG")
    console.out.print(str(target), soft_wrap=True)
