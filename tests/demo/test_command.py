"""torchcaps demo and torchcaps serve as processes."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from torchcaps.demo.server import allowed_hosts, listen
from torchcaps.errors import TorchcapsError
from torchcaps.pretrained.loading import find_card

pytestmark = pytest.mark.process


def connect(process: subprocess.Popen[str]) -> httpx.Client:
    """Return a client of the address that the command prints."""
    assert process.stdout is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert address
    return httpx.Client(base_url=address[0], transport=httpx.HTTPTransport(retries=3), timeout=60)


@pytest.mark.parametrize("command", [["demo", "--no-browser"], ["serve"]], ids=["demo", "serve"])
def test_start_request_stop(command: list[str], tmp_path: Path) -> None:
    call = [str(Path(sys.executable).with_name("torchcaps")), *command, "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            with connect(process) as client:
                assert client.get("/health").status_code == 200
                assert client.get("/docs").status_code == 200
                assert client.get("/").status_code == 200
                assert len(client.get("/api/models").json()) >= 4
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0  # the usual way to end it is no failure
            assert "Traceback" not in (process.stderr.read() if process.stderr else "")
        finally:
            process.kill()


SHIPPED = "convnet-avg-mnist-laptop"


@pytest.mark.parametrize("command", [["demo", "--no-browser"], ["serve"]], ids=["demo", "serve"])
def test_shipped_weights_by_name(command: list[str], tmp_path: Path) -> None:
    """Like a run; a directory of that name with what another command computed does not hide them."""
    (tmp_path / SHIPPED / "explain").mkdir(parents=True)
    call = [str(Path(sys.executable).with_name("torchcaps")), *command, SHIPPED, "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            with connect(process) as client:
                (model,) = client.get("/api/models").json()
                assert model["name"] == SHIPPED
                assert model["test_accuracy"] == find_card("convnet-avg", None).test_accuracy
                assert client.get("/api/samples").json()["images"]["shape"] == [40, 1, 28, 28]
        finally:
            process.kill()


def test_a_port_in_use_is_reported() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(TorchcapsError, match=f"cannot listen on 127.0.0.1 port {port}"):
            listen("127.0.0.1", port)


def test_an_address_that_others_reach_may_have_any_name() -> None:
    assert allowed_hosts("0.0.0.0") is None
    assert "localhost" in (allowed_hosts("127.0.0.1") or [])


def test_responses_are_sent_without_delay() -> None:
    """Connections inherit TCP_NODELAY; without it, each response on an open connection takes 40 ms more."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_starting_loads_nothing_that_serving_does_not_need() -> None:
    """Slow imports are deferred to the first request that needs them."""
    code = (
        "import sys, torchcaps.demo.app, torchcaps.demo.server, torchcaps.demo.served\n"
        "print(*{'matplotlib', 'numba', 'scipy', 'lightning_fabric', 'torchcaps.reproduce'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
