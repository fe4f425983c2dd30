"""torchcaps serve and torchcaps demo"""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.options import Plugin, complete_run
from torchcaps.errors import TorchcapsError, install_command

if TYPE_CHECKING:
    from fastapi import FastAPI

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run directories, or names from 'torchcaps weights'.  [default: shipped networks]",
        autocompletion=complete_run,
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on; the default is reachable from this machine only.")]
Port = Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)]
Images = Annotated[
    list[Path] | None,
    typer.Option(help="Folder or CSV file of your own images; shows those that a run was tested on. Repeatable."),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="TORCHCAPS_TOKEN",
        help="Secret that clients must send as 'Authorization: Bearer TOKEN'; required if other machines can reach the "
        "address. Prefer the environment variable: other users of this machine can see the option.",
    ),
]
NoAuth = Annotated[bool, typer.Option("--no-auth", help="Accept requests without a token from any machine.")]


def serve_command(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = 8378,
    token: Token = None,
    no_auth: NoAuth = False,
    images: Images = None,
    plugin: Plugin = None,
) -> None:
    """Serve models over HTTP: the API of 'torchcaps demo'."""
    app, listening, address = create_service(runs, host, port, token=token, no_auth=no_auth, images=images, page=False)
    from torchcaps.demo.server import serve_until_stopped

    console.out.print(f"Service: {address}/api/predict\nDocumentation: {address}/docs\nStop with Ctrl-C.")
    serve_until_stopped(app, listening)


def demo_command(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = 8377,
    token: Token = None,
    no_auth: NoAuth = False,
    images: Images = None,
    results: Annotated[Path, typer.Option(help="Directory of reproduced results to show.")] = Path("results"),
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    plugin: Plugin = None,
) -> None:
    """Draw digits in the browser and watch the capsules.

    Uses the shipped networks, or the runs that are named.
    """
    app, listening, address = create_service(
        runs, host, port, token=token, no_auth=no_auth, images=images, results=results
    )
    from torchcaps.demo.server import serve_until_stopped

    console.out.print(f"Page: {address}\nStop with Ctrl-C.")
    if browser:
        typer.launch(address)  # the socket already listens: the browser waits for the first response
    serve_until_stopped(app, listening)


def create_service(
    runs: list[str] | None,
    host: str,
    port: int,
    *,
    token: str | None,
    no_auth: bool,
    images: list[Path] | None,
    **options: Any,
) -> tuple[FastAPI, socket.socket, str]:
    """The application, the socket it listens on, and its URL; ``options`` are passed to ``create_app``."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise TorchcapsError(f"this command needs fastapi and uvicorn: {install_command('demo')}")
    with garbage_collection_paused():
        from torchcaps.demo.app import create_app
        from torchcaps.demo.served import load_pretrained_models, load_run_models
        from torchcaps.demo.server import allowed_hosts, check_token, listen, share_cores

        check_token(host, token, no_auth=no_auth)
        served = load_run_models(runs, images or ()) if runs else load_pretrained_models()
        listening = listen(host, port)
        share_cores(len(served))
        app = create_app(served, hosts=allowed_hosts(host), token=token, onnxruntime=True, **options)
    return app, listening, f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Exempt what is loaded inside from garbage collection, which would take a tenth of the startup time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
