"""torchcaps data list | get | verify | preview, torchcaps datasets, torchcaps bench data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete
from torchcaps.cli.options import AsJson
from torchcaps.errors import TorchcapsError

data_app = typer.Typer(help="Datasets: what is here, fetch, verify, look at.", no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(help="Datasets, see 'torchcaps datasets'.", autocompletion=complete("dataset"))
]


def in_short(count: int) -> str:
    """A count in few letters: 900, 8.1k, 60M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)


def datasets_command(json: AsJson = False) -> None:
    """List all datasets: images, shape, classes, here or to fetch, licence."""
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
            record.licence,
            " + ".join(map(in_short, record.splits.values())),
            "x".join(map(str, record.shape)),
            str(len(record.class_names)),
        )
        for record in datasets
    ]
    table += [(f"{family}:FOLDER", "your own", "", "", "", "") for family in datasets.families]
    columns = ("name", "state", "licence", "images", "shape", "classes")
    console.print_table("Datasets", columns, table, numbers=3)


@data_app.command("list")
def list_command(json: AsJson = False) -> None:
    """Show which datasets are here, where they lie and how much room they take."""
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
    console.print_table("Files of the datasets", ("name", "state", "folder", "MB"), rows, numbers=1)


@data_app.command("get")
def get_command(
    names: Annotated[
        list[str], typer.Argument(help="Datasets, see 'torchcaps datasets'.", autocompletion=complete("dataset"))
    ],
) -> None:
    """Fetch datasets that are not here yet, and verify them."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import download_dataset

    for record in [datasets.get(name) for name in names]:  # a wrong name is told before anything is fetched
        console.out.print(f"{record.name} is complete: {download_dataset(record)}", soft_wrap=True)


@data_app.command("verify")
def verify_command(names: Names = None, json: AsJson = False) -> None:
    """Compare the files of datasets with their checksums; without names, all that are here."""
    from torchcaps.data import datasets
    from torchcaps.data.registry import HERE, dataset_status, verify_dataset

    # Without names, each folder once: several datasets may be made from the same files.
    present = [record for record in reversed(list(datasets)) if dataset_status(record).state == HERE]
    here = {record.folder or record.name: record for record in present}
    chosen = [datasets.get(name) for name in names or ()] or list(reversed(here.values()))
    found: dict[str, list[str]] = {}
    for record in chosen:
        found[record.name] = verify_dataset(record)
        for problem in found[record.name]:
            console.err.print(problem, soft_wrap=True)
        if not found[record.name] and not json:
            console.out.print(f"{record.name} is intact" if record.files else f"{record.name} is generated: no files")
    if json:
        console.print_json([{"name": name, "problems": problems} for name, problems in found.items()])
    bad = sum(bool(problems) for problems in found.values())
    if bad:
        raise TorchcapsError(
            f"{bad} of {len(chosen)} datasets are not intact: remove the files named above and get them again"
        )


@data_app.command("preview")
def preview_command(
    name: Annotated[
        str, typer.Argument(help="A dataset, see 'torchcaps datasets'.", autocompletion=complete("dataset"))
    ],
    out: Annotated[Path | None, typer.Option(help="The PNG file to write.  [default: preview-NAME.png]")] = None,
    split: Annotated[str, typer.Option(help="Which part of the dataset.")] = "train",
) -> None:
    """Draw a contact sheet of a dataset."""
    from torchcaps.data import load_dataset
    from torchcaps.data.preview import contact_sheet
    from torchcaps.files import atomic_path

    images = load_dataset(name, split)
    sheet = contact_sheet(images, f"{name}, {split}: {len(images):,} images of {'x'.join(map(str, images.shape))}")
    target = out or Path(f"preview-{name.partition(':')[0]}.png")
    with atomic_path(target) as temporary:
        sheet.save(temporary, format="PNG")
    console.out.print(str(target), soft_wrap=True)


def bench_data_command(
    out: Annotated[Path, typer.Option(help="The JSON file to write.")] = Path("results/bench/data.json"),
    json: AsJson = False,
) -> None:
    """Measure how fast datasets give images, on one core, against the project's targets."""
    from torchcaps.bench.datasets import measure_datasets
    from torchcaps.environment import describe_environment
    from torchcaps.files import write_json

    rows = measure_datasets()
    write_json(out, {"threads": 1, "rows": rows, "environment": describe_environment()})
    if json:
        console.print_json(rows)
        return
    columns = ("what", "unit", "measured", "by the clock", "target")
    table = [(str(row["what"]), str(row["unit"]), *(f"{row[name]:,}" for name in columns[2:])) for row in rows]
    console.print_table("Data on one core", columns, table, numbers=3)
