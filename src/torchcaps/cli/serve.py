"""torchcaps serve"""

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
from torchcaps.cli.options import Plugin
from torchcaps.errors import TorchcapsError

# MERGED torchcaps demo
if TYPE_CHECKING:
    from fastapi import FastAPI

    from torchcaps.demo.served import ServedModel

Runs = Annotated[list[Path] | None, typer.Argument(help="Folders of trained runs.  [default: shipped networks]")]
Host = Annotated[str, typer.Option(help="Address to listen on; others can reach it only if you name one of theirs.")]
Port = Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)]
Images = Annotated[
    list[Path] | None,
    typer.Option(help="Folder or CSV file of your own pictures, to show those that a run was tested with; repeatable."),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="TORCHCAPS_TOKEN",
        help="Secret that clients must send as 'Authorization: Bearer TOKEN'; needed if other machines can reach the "
        "address. Use the environment variable: other users of this machine can see the option.",
    ),
]
NoAuth = Annotated[bool, typer.Option("--no-auth", help="Let anybody who can reach the address use it.")]


def serve(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = 8378,
    token: Token = None,
    no_auth: NoAuth = False,
    images: Images = None,
    plugin: Plugin = None,
) -> None:
    """Answer questions about models over HTTP: the service of 'torchcaps demo' without the page."""
    app, listening, address = prepare(runs, host, port, token=token, no_auth=no_auth, images=images, page=False)
    from torchcaps.demo.server import serve_until_stopped

    console.out.print(f"Service: {address}/api/predict\nDocumentation: {address}/docs\nStop with Ctrl-C.")
    serve_until_stopped(app, listening)


def prepare(
    runs: list[Path] | None,
    host: str,
    port: int,
    *,
    token: str | None,
    no_auth: bool,
    images: list[Path] | None,
    **options: Any,
) -> tuple[FastAPI, socket.socket, str]:
    """The service for the models, the socket on which it listens, and its address; options as create_app takes them."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise TorchcapsError("this command needs fastapi and uvicorn: pip install 'torchcaps[demo]'")
    with loading():
        from torchcaps.demo.app import create_app
        from torchcaps.demo.server import allowed_hosts, check_token, listen, share_cores

        check_token(host, token, no_auth=no_auth)
        served = open_models(runs, images)
        listening = listen(host, port)
        share_cores(len(served))
        app = create_app(served, hosts=allowed_hosts(host), token=token, **options)
        return app, listening, address_of(listening, host)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """What is loaded inside stays until the end: to search it for garbage would take a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def open_models(runs: list[Path] | None, images: list[Path] | None) -> list[ServedModel]:
    """The models that were named, or those that come with the package."""
    from torchcaps.demo.served import load_pretrained_models, load_run_models

    return load_run_models(runs, images or ()) if runs else load_pretrained_models()


def address_of(listening: socket.socket, host: str) -> str:
    """The address that a browser takes."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def demo(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = 8377,
    token: Token = None,
    no_auth: NoAuth = False,
    images: Images = None,
    results: Annotated[Path, typer.Option(help="Folder of reproduced results to show.")] = Path("results"),
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    plugin: Plugin = None,
) -> None:
    """Draw a digit in the browser and see what the capsules see; with models of your own or those that are shipped."""
    app, listening, address = prepare(runs, host, port, token=token, no_auth=no_auth, images=images, results=results)
    from torchcaps.demo.server import serve_until_stopped

    console.out.print(f"Page: {address}\nStop with Ctrl-C.")
    if browser:
        typer.launch(address)  # the socket listens already: the browser waits until the service answers
    serve_until_stopped(app, listening)
