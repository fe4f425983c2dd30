"""A local server with the part of the Hugging Face Hub API that its client needs to upload and download files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Files of repositories by (repository, name), and sizes that it claims for some of them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[tuple[str, str], bytes] = {}
        self.claims: dict[str, int] = {}
        self.sent: list[str] = []  # names of files whose bytes were asked for

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *arguments: object) -> None:
        """Do not log requests."""

    def do_HEAD(self) -> None:
        self.send_file(body=False)

    def do_GET(self) -> None:
        self.send_file(body=True)

    def send_file(self, *, body: bool) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/([^/?]+)", self.path)
        content = self.server.files.get((found[1], found[2])) if found else None
        if found is None or content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(self.server.claims.get(found[2], len(content))))
        self.end_headers()
        if body:
            self.server.sent.append(found[2])
            self.wfile.write(content)

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/api/repos/create":
            wanted = json.loads(asked)
            name = f"{wanted['organization']}/{wanted['name']}"
            self.answer({"url": f"{self.server.address}/{name}", "name": name})
        elif self.path == "/api/validate-yaml":  # the front matter of the card
            self.answer({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/main", self.path):
            names = [file["path"] for file in json.loads(asked)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self.answer({"files": files})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
            for line in map(json.loads, asked.splitlines()):
                if line["key"] == "file":
                    self.server.files[found[1], line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"commitUrl": f"{self.server.address}/{found[1]}/commit/{COMMIT}", "commitOid": COMMIT})
        else:
            self.answer({}, 404)

    def answer(self, value: Any, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a Hub server inside the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
