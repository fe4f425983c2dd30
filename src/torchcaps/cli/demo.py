"""torchcaps demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.serve import Host, Port, Runs, address_of, open_models
from torchcaps.cli.settings import Plugin


def demo(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = 8377,
    results: Annotated[Path, typer.Option(help="Folder of reproduced results to show.")] = Path("results"),
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    plugin: Plugin = None,
) -> None:
    """Draw a digit in the browser and see what the capsules see; with models of your own or those that are shipped."""
    served = open_models(runs)
    from torchcaps.demo.app import create_app
    from torchcaps.demo.run import allowed_hosts, listen, make_server, share_cores

    listening = listen(host, port)
    share_cores(len(served))
    server = make_server(create_app(served, results=results, hosts=allowed_hosts(host)))
    address = address_of(listening, host)
    console.out.print(f"Page: {address}\nStop with Ctrl-C.")
    if browser:
        typer.launch(address)  # the socket listens already: the browser waits until the service answers
    server.run(sockets=[listening])
