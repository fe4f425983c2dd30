"""torchcaps export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.settings import Plugin


def export(
    source: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or a name of 'torchcaps weights'.")],
    to: Annotated[str, typer.Option(help="'onnx', or 'torch' for torch.export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file.  [default: model.onnx in the run, or the weights' name here]")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Write a trained model as a file for other programs, checked against PyTorch."""
    from torchcaps.export import export_model

    written = export_model(source, out, to=to)
    console.out.print(f"Written: {written.path}", soft_wrap=True)
    taken = written.details["preprocessing"]
    console.out.print(
        f"Its scores differ by at most {written.difference:.0e} from PyTorch's. It takes {taken}.", soft_wrap=True
    )
