"""torchcaps predict and export: use a trained model"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, complete_run

ENOUGH_VALIDATION = 100  # images, so that one in a hundred can be told
MOST_ROWS = 40  # in the printed table; --csv has all


def predict_command(
    run: Annotated[
        str,
        typer.Argument(help="Run directory, or a name from 'torchcaps weights'.", autocompletion=complete_run),
    ],
    pictures: Annotated[list[Path], typer.Argument(help="Image files, or folders of images.")],
    top: Annotated[int, typer.Option(help="Number of classes to show per image.", min=1)] = 3,
    csv: Annotated[Path | None, typer.Option(help="Also write all probabilities to this CSV file.")] = None,
    least_sure: Annotated[
        Path | None, typer.Option(help="Also draw the least confident predictions as this PNG file.")
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Classify image files and print probabilities.

    'typical' is no for an image that the winning capsule reconstructs worse than 99 % of the validation images: it is
    unlike the images that the network was trained on. Files that cannot be read are reported and skipped.
    """
    from torchcaps.prediction import draw_least_confident, predict, write_csv
    from torchcaps.pretrained.loading import load_trained

    found = predict(run, pictures)
    for problem in found.broken.values():
        console.warn(problem)
    drawn = draw_least_confident(load_trained(run).model, found, least_sure) if least_sure else 0
    if csv:
        write_csv(found, csv)
    if json:
        console.print_json(found.as_json())
        return
    count = min(top, len(found.class_names))
    judged = any(each.unusual is not None for each in found.answers)
    rows = [
        (
            str(each.path),
            *(f"{name}: {share:.1%}" for name, share in found.top(each, count)),
            *(["NO" if each.unusual else "yes"] if judged else []),
        )
        for each in found.answers[:MOST_ROWS]
    ]
    ranks = ("prediction", "second", "third", *(f"{rank}th" for rank in range(4, count + 1)))[:count]
    console.print_table(run, ("image", *ranks, *(["typical"] if judged else [])), rows)
    if unusual := sum(bool(each.unusual) for each in found.answers):
        console.out.print(
            f"{unusual} of {len(found.answers)} images are unlike those that the network was trained on (typical: NO): "
            "do not trust their predictions.",
            soft_wrap=True,
        )
    if judged and found.validation_images is not None and found.validation_images < ENOUGH_VALIDATION:
        console.out.print(
            f"'typical' compares an image with only {found.validation_images} validation images, and may miss unusual "
            "ones: train with more images.",
            soft_wrap=True,
        )
    if len(found.answers) > MOST_ROWS:
        console.out.print(f"... and {len(found.answers) - MOST_ROWS} more; use --csv FILE or --json to get all.")
    if drawn:
        console.out.print(f"Least confident predictions ({drawn}): {least_sure}", soft_wrap=True)
    if csv:
        console.out.print(f"All probabilities: {csv}", soft_wrap=True)


def export_command(
    source: Annotated[str, typer.Argument(metavar="RUN", help="Run directory, or a name from 'torchcaps weights'.")],
    to: Annotated[str, typer.Option(help="Format: 'onnx', or 'torch' for torch.export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="Output file.  [default: model.onnx in the run directory, or NAME.onnx here]")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Export a trained model to ONNX or torch.export."""
    from torchcaps.export import export_model

    written = export_model(source, out, to=to)
    console.out.print(f"Written: {written.path}", soft_wrap=True)
    expected = written.details["preprocessing"]
    console.out.print(
        f"Largest difference from PyTorch's answers: {written.difference:.0e}. Input: {expected}.", soft_wrap=True
    )
