"""The ``torchcaps`` command: all subcommands, and how errors become exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from torchcaps import __version__
from torchcaps.cli import console, evaluate, listings, predict, reproduce, serve
from torchcaps.cli.bench import bench_app
from torchcaps.cli.compare import compare_command
from torchcaps.cli.data import data_app, datasets_command
from torchcaps.cli.explain import explain_command
from torchcaps.cli.train import train_command, tune_rate_command
from torchcaps.errors import TorchcapsError
from torchcaps.runtime import tune_process

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: readable in 80 columns, and brackets such as [default: mnist] are shown
)


def show_version(requested: bool) -> None:
    if requested:
        console.out.print(f"torchcaps {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train, compare, attack and explain capsule networks on PyTorch."""


app.command("train")(train_command)
app.command("tune-rate")(tune_rate_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("predict")(predict.predict_command)
app.command("compare")(compare_command)
app.command("explain")(explain_command)
app.command("export")(predict.export_command)
app.command("demo")(serve.demo_command)
app.command("serve")(serve.serve_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("report")(reproduce.report_command)
app.command("papers")(reproduce.papers_command)
app.command("models")(listings.models_command)
app.command("routings")(listings.routings_command)
app.command("components")(listings.components_command)
app.command("losses")(listings.losses_command)
app.command("optimizers")(listings.optimizers_command)
app.command("schedules")(listings.schedules_command)
app.command("attacks")(listings.attacks_command)
app.command("weights")(listings.weights_command)
app.command("datasets")(datasets_command)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.command("doctor")(listings.doctor_command)


def main() -> None:
    """Run the command. A user's mistake prints one sentence and exits with code 2, without a traceback."""
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
