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
from torchcaps.cli.settings import Plugin
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from torchcaps.demo.served import Served

Runs = Annotated[list[Path] | None, typer.Argument(help="Folders of trained runs.  [default: shipped networks]")]
Host = Annotated[str, typer.Option(help="Address to listen on; others can reach it only if you name one of theirs.")]
Port = Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)]


def serve(runs: Runs = None, host: Host = "127.0.0.1", port: Port = 8378, plugin: Plugin = None) -> None:
    """Answer questions about models over HTTP: the service of 'torchcaps demo' without the page."""
    app, listening, address = prepare(runs, host, port, page=False)
    from torchcaps.demo.run import serve_until_stopped

    console.out.print(f"Service: {address}/api/predict\nDocumentation: {address}/docs\nStop with Ctrl-C.")
    serve_until_stopped(app, listening)


def prepare(runs: list[Path] | None, host: str, port: int, **options: Any) -> tuple[FastAPI, socket.socket, str]:
    """The service for the models, the socket on which it listens, and its address; options as create_app takes them."""
    with loading():
        served = open_models(runs)
        from torchcaps.demo.app import create_app
        from torchcaps.demo.run import allowed_hosts, listen, share_cores

        listening = listen(host, port)
        share_cores(len(served))
        return create_app(served, hosts=allowed_hosts(host), **options), listening, address_of(listening, host)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """What is loaded inside stays until the end: to search it for garbage would take a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def open_models(runs: list[Path] | None) -> list[Served]:
    """The models that were named, or those that come with the package."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise TorchcapsError("this command needs fastapi and uvicorn: pip install 'torchcaps[demo]'")
    from torchcaps.demo.served import open_runs, open_shipped

    return open_runs(runs) if runs else open_shipped()


def address_of(listening: socket.socket, host: str) -> str:
    """The address that a browser takes."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
