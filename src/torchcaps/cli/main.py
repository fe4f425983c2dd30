"""The ``torchcaps`` command. Commands are thin; what they need is imported when they run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from torchcaps import __version__
from torchcaps.cli import console
from torchcaps.cli.bench import bench_app
from torchcaps.cli.compare import compare
from torchcaps.cli.data import data_app, datasets_command
from torchcaps.cli.evaluate import evaluate, explain, export, predict
from torchcaps.cli.listings import attacks, doctor, models, papers, routings, weights
from torchcaps.cli.reproduce import report, reproduce
from torchcaps.cli.serve import demo, serve
from torchcaps.cli.train import train
from torchcaps.errors import TorchcapsError
from torchcaps.runtime import tune_process

app = typer.Typer(
    help="Capsule networks, built, trained and compared on equal terms.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def show_version(asked: bool) -> None:
    if asked:
        console.out.print(f"torchcaps {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Capsule networks, built, trained and compared on equal terms."""


app.command()(train)
app.command()(evaluate)
app.command()(predict)
app.command()(compare)
app.command()(explain)
app.command()(export)
app.command()(demo)
app.command()(serve)
app.command()(reproduce)
app.command()(report)
app.command()(papers)
app.command()(models)
app.command()(routings)
app.command()(attacks)
app.command()(weights)
app.command("datasets")(datasets_command)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.command()(doctor)


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2, never a traceback."""
    tune_process()  # before torch is imported: OpenMP reads its settings then
    console.log_to_console()
    try:
        app()
    except TorchcapsError as error:
        console.err.print(Text.assemble(("Error:", "bold red"), f" {error}"), soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        console.err.print("Stopped.")
        sys.exit(130)
