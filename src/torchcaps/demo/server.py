"""The files that a browser loads, read once at the start: no path of a request ever reaches the file system."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI, Request, Response

from torchcaps.demo.connections import IDLE_SECONDS, Connection
from torchcaps.demo.guard import LOCAL_NAMES
from torchcaps.errors import TorchcapsError

# MERGED Open a port and serve until somebody stops it.
FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_page(app: FastAPI) -> None:
    """The page at ``/``, with its styles and modules under ``/page``."""
    add_file(app, "/", FOLDER / "index.html")
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES and not path.name.startswith("docs") and path.name != "index.html":
            add_file(app, f"/page/{path.relative_to(FOLDER).as_posix()}", path)


def add_docs(app: FastAPI) -> None:
    """The documentation of the service at ``/docs``, made in the browser from ``/openapi.json``."""
    add_file(app, "/docs", FOLDER / "docs.html")
    for name in ("docs.js", "docs.css"):
        add_file(app, f"/{name}", FOLDER / name)


def add_file(app: FastAPI, path: str, file: Path) -> None:
    """Answer one path with one file; a browser asks again each time, and is told if nothing changed."""
    content, kind = file.read_bytes(), TYPES[file.suffix]
    mark = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    app.get(path, include_in_schema=False)(_sender(content, kind, mark))


def _sender(content: bytes, kind: str, mark: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        headers = {"etag": mark, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    # FastAPI reads annotations by name, and names of this file are not known where it looks.
    send.__annotations__ = {"request": Request, "return": Response}
    return send


SHORTEST_TOKEN = 16


def share_cores(models: int) -> None:
    """Each model has a thread of its own: together they get the machine's cores, and not several times over."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // models))


def allowed_hosts(host: str) -> list[str] | None:
    """Names by which a service on this address may be called: its own on loopback, any where others may reach it."""
    return [*LOCAL_NAMES, host] if is_loopback(host) else None


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # what another name leads to may change


def check_token(host: str, token: str | None, *, no_auth: bool) -> None:
    """Refuse to serve other machines without a token, unless the user said so, and tokens that can be guessed."""
    if token is None:
        if no_auth or is_loopback(host):
            return
        raise TorchcapsError(
            f"anybody who can reach {host} could use this service: set TORCHCAPS_TOKEN to a secret "
            "(python -c 'import secrets; print(secrets.token_urlsafe())' makes one), or add --no-auth"
        )
    if no_auth:
        raise TorchcapsError("--no-auth was given together with a token: give one of them, not both")
    if len(token) < SHORTEST_TOKEN:
        raise TorchcapsError(f"the token has {len(token)} characters: it needs at least {SHORTEST_TOKEN}")
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise TorchcapsError("the token must be made of letters, digits and - . _ ~ + / = only")


def listen(host: str, port: int) -> socket.socket:
    """A socket on the address, or one sentence that says why not. Port 0 takes any that is free."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise TorchcapsError(f"cannot serve on {host} port {port}: {error}. Choose another with --port") from error
    # Connections inherit it. Without, the second packet of an answer waits 40 ms for the first to be confirmed.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_server(app: FastAPI) -> uvicorn.Server:
    """What listens; ``run(sockets=[...])`` serves until it is interrupted."""
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(settings)


def serve_until_stopped(app: FastAPI, listening: socket.socket) -> None:
    """Answer on the socket until Ctrl-C, which is how a service ends and no failure: uvicorn raises it again."""
    with contextlib.suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])
    if threading.active_count() > 1:
        # A folder is still being read, or a network compiled for its first image. Neither can be interrupted. Python's
        # own way to end would wait for the one, and tear down the other, so that the compiler aborts the process.
        sys.stdout.flush()
        os._exit(0)
