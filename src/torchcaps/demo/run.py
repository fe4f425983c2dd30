"""Open a port and serve until somebody stops it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

import torch
import uvicorn
from fastapi import FastAPI

from torchcaps.demo.guard import LOCAL_NAMES
from torchcaps.errors import TorchcapsError

MOST_CONNECTIONS = 200


def share_cores(models: int) -> None:
    """Each model has a thread of its own: together they get the machine's cores, and not several times over."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // models))


def allowed_hosts(host: str) -> list[str] | None:
    """Names by which a service on this address may be called: its own on loopback, any where others may reach it."""
    return [*LOCAL_NAMES, host] if host in ("127.0.0.1", "localhost", "::1") else None


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
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(settings)


def serve_until_stopped(app: FastAPI, listening: socket.socket) -> None:
    """Answer on the socket until Ctrl-C, which is how a service ends and no failure: uvicorn raises it again."""
    with contextlib.suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])
    if any(thread.daemon for thread in threading.enumerate()):
        # A network is still being compiled for its first image: that cannot be interrupted, and Python's own way to
        # end would tear it down in the middle, which the compiler answers by aborting the process.
        sys.stdout.flush()
        os._exit(0)
