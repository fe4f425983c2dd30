"""A real service on a real port, with the shipped networks, for all tests of the demo."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from torch import Tensor

from torchcaps.demo.app import create_app
from torchcaps.demo.guard import LOCAL_NAMES
from torchcaps.demo.served import ServedModel, load_pretrained_models
from torchcaps.demo.server import listen, make_server


@pytest.fixture(scope="session")
def shipped() -> list[ServedModel]:
    return load_pretrained_models()


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="session")
def address(shipped: list[ServedModel], results_folder: Path) -> Iterator[str]:
    with running(create_app(shipped, results=results_folder, hosts=LOCAL_NAMES)) as address:
        yield address


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Run a service in a thread; yield its address."""
    server = make_server(app)
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture(scope="session")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def capsnet(shipped: list[ServedModel]) -> ServedModel:
    return next(each for each in shipped if each.name == "capsnet-mnist-laptop")


@pytest.fixture(scope="session")
def digits(capsnet: ServedModel) -> tuple[Tensor, list[int]]:
    """Test images (N, 1, 28, 28) in [0, 1] with their labels."""
    return decoded(capsnet.samples.images.model_dump()), [row[0] for row in capsnet.samples.labels]


def decoded(pictures: dict[str, object]) -> Tensor:
    """The images of a response, in [0, 1]."""
    content = np.frombuffer(base64.b64decode(str(pictures["data"])), dtype=np.uint8)
    return torch.from_numpy(content.astype(np.float32) / 255).view(pictures["shape"])  # type: ignore[call-overload]


def rows(image: Tensor) -> list[list[float]]:
    """A gray image (1, H, W) in the format of a request."""
    return image[0].tolist()  # type: ignore[no-any-return]
