"""torchcaps demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.serve import Host, Images, NoAuth, Port, Runs, Token, prepare
from torchcaps.cli.settings import Plugin


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
    from torchcaps.demo.run import serve_until_stopped

    console.out.print(f"Page: {address}\nStop with Ctrl-C.")
    if browser:
        typer.launch(address)  # the socket listens already: the browser waits until the service answers
    serve_until_stopped(app, listening)
