"""The files that a browser loads, read once at the start: no path of a request ever reaches the file system."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI, Request, Response

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
