"""torchcaps explain"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, complete, complete_run, split_names
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.data import ImageSet
    from torchcaps.train import RunFolder


def explain_command(
    run: Annotated[
        str,
        typer.Argument(help="Run directory, or a name from 'torchcaps weights'.", autocompletion=complete_run),
    ],
    image: Annotated[
        str | None, typer.Argument(help="Image file, or index of a test image.  [default: one image per class]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output directory.  [default: RUN/explain]")] = None,
    only: Annotated[
        str | None, typer.Option(help="Comma-separated list of explanations, e.g. 'couplings,votes'.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Use test images of this dataset.  [default: the run's]", autocompletion=complete("dataset")),
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Use this folder of labeled images instead.  [default: the run's]")
    ] = None,
    decoder: Annotated[Path | None, typer.Option(help="Also reconstruct with the decoder of this run.")] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Visualize capsules, couplings and votes of a trained model."""
    from torchcaps.analysis.explain import explain as explain_model
    from torchcaps.models import models
    from torchcaps.pretrained.loading import open_trained, output_folder
    from torchcaps.train import load

    opened = open_trained(run)
    folder = out or output_folder(opened, "explain")
    shown, name = _explained_images(opened, data, images)
    title = f"{opened.config().model} on {name}"
    report = explain_model(
        load(opened.path),
        shown,
        folder,
        picture=image,
        only=split_names(only),
        other=load(decoder) if decoder else None,
        title=title,
        run=str(run),
        paper=models.get(opened.config().model).paper,
    )
    if json:
        console.print_json(report)
        return
    for each in report["predictions"]:
        true = "" if each["true_label"] is None else f"; true label: {each['true_label']}"
        share = next(iter(each["probabilities"].values()))
        console.out.print(f"{each['image']}: {each['prediction']} ({share:.1%}){true}", soft_wrap=True)
    rows = [
        (file, each["finding"] if number == 0 else "")
        for each in report["explanations"].values()
        for number, file in enumerate(each["files"])
    ]
    rows += [(f"{name}: skipped", reason) for name, reason in report["skipped"].items()]
    console.print_table(title, ("file", "finding"), rows)
    console.out.print(f"Page: {folder / 'index.html'}")


def _explained_images(run: RunFolder, data: str | None, images: str | None) -> tuple[ImageSet, str]:
    """The images to explain, and their name. If the run's own images are gone, those that the run keeps."""
    from torchcaps.data import load_dataset
    from torchcaps.data.datasets.image_folder import display_name, own_folder
    from torchcaps.evaluate.folder import open_folder
    from torchcaps.train.run_images import read_samples

    if data and images:
        raise TorchcapsError(f"--data {data} and --images {images} both name images: use only one of them")
    if images:
        return open_folder(run, Path(images))[0], Path(images).name
    if data:
        return load_dataset(data, "test"), data
    name = run.config().data
    folder, kept = own_folder(name), read_samples(run)
    if folder is not None and not folder.exists() and kept is not None:
        console.warn(f"{folder} does not exist: using the {len(kept)} test images that the run keeps")
        return kept, display_name(name)
    run.check_dataset()
    return load_dataset(name, "test"), display_name(name)
