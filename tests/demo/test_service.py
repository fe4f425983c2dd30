"""The request queue: batching, order, limits, and isolation of errors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch

from torchcaps.demo.answers import predict_batch
from torchcaps.demo.schemas import PredictRequest
from torchcaps.demo.served import load_pretrained_models
from torchcaps.demo.service import QueueFullError, Service, Worker
from torchcaps.models import Output


def run(scene: Callable[[Worker], Coroutine[Any, Any, None]], **settings: Any) -> None:
    worker = Worker("test", **settings)
    try:
        asyncio.run(scene(worker))
    finally:
        worker.stop()
        worker.join(5)


def test_waiting_requests_are_batched_in_order() -> None:
    gate, sizes = threading.Event(), []

    def doubled(numbers: list[int]) -> list[int]:
        gate.wait(5)
        sizes.append(len(numbers))
        return [2 * number for number in numbers]

    async def scene(worker: Worker) -> None:
        asked = [asyncio.create_task(worker.submit(doubled, number, batchable=True)) for number in range(10)]
        await asyncio.sleep(0.05)
        gate.set()
        assert await asyncio.gather(*asked) == [2 * number for number in range(10)]
        assert max(sizes) == 4  # as many as were allowed
        assert sum(sizes) == 10
        assert (worker.batches, worker.processed) == (len(sizes), 10)

    run(scene, batch_size=4)


def test_other_requests_are_processed_one_by_one() -> None:
    sizes: dict[str, list[int]] = {"a": [], "b": []}

    def first(payloads: list[int]) -> list[int]:
        sizes["a"].append(len(payloads))
        return payloads

    def second(payloads: list[int]) -> list[int]:
        sizes["b"].append(len(payloads))
        return payloads

    async def scene(worker: Worker) -> None:
        await asyncio.gather(*(worker.submit(first, 1) for _ in range(3)), worker.submit(second, 1, batchable=True))
        assert sizes == {"a": [1, 1, 1], "b": [1]}

    run(scene)


def test_a_full_queue_raises_immediately() -> None:
    gate = threading.Event()

    def wait(payloads: list[int]) -> list[int]:
        gate.wait(5)
        return payloads

    async def scene(worker: Worker) -> None:
        asked = [asyncio.create_task(worker.submit(wait, number)) for number in range(1)]
        await asyncio.sleep(0.05)  # the first is being worked on
        asked += [asyncio.create_task(worker.submit(wait, number)) for number in range(3)]
        await asyncio.sleep(0.05)
        assert worker.waiting == 3
        with pytest.raises(QueueFullError):
            await worker.submit(wait, 9)
        gate.set()
        await asyncio.gather(*asked)
        assert await worker.submit(wait, 7) == 7

    run(scene, queue_size=3)


def test_an_error_is_returned_and_the_worker_continues() -> None:
    def fails(payloads: list[int]) -> list[int]:
        raise ValueError(f"no {payloads[0]}")

    async def scene(worker: Worker) -> None:
        with pytest.raises(ValueError, match="no 1"):
            await worker.submit(fails, 1)
        assert await worker.submit(lambda payloads: payloads, 2) == 2

    run(scene)


def test_cancelled_requests_are_skipped() -> None:
    gate, worked = threading.Event(), []

    def slow(payloads: list[int]) -> list[int]:
        gate.wait(5)
        worked.extend(payloads)
        return payloads

    async def scene(worker: Worker) -> None:
        first = asyncio.create_task(worker.submit(slow, 1))
        await asyncio.sleep(0.02)
        with pytest.raises(TimeoutError):
            await worker.submit(slow, 2)
        gate.set()
        with pytest.raises(TimeoutError):
            await first
        assert await worker.submit(lambda payloads: payloads, 3) == 3
        assert worked == [1]

    run(scene, timeout=0.2)


def test_onnxruntime_is_used_where_it_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same answers, said in the description of the model; a model that cannot be exported keeps PyTorch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = ("convnet-avg-mnist-laptop", "capsnet-mnist-laptop")
    first, second = (each for name in names for each in load_pretrained_models() if each.name == name)
    image = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = first.model(image.unsqueeze(0)).logits.softmax(1)[0].tolist()

    def slowly(images: torch.Tensor) -> Output:
        time.sleep(0.2)
        return Output(*first.model(images))

    first.predict._chosen = slowly
    service = Service([first, second])
    assert second.info  # computed while the shape is right
    monkeypatch.setattr(second.model, "image_shape", None)

    async def scene() -> None:
        assert [each.runtime for each in service.infos] == ["pytorch", "pytorch"]
        for name in service.served:
            await service.use_onnxruntime(name)
        assert [each.runtime for each in service.infos] == ["onnxruntime", "pytorch"]
        (answer,) = await service.workers[first.name].submit(
            lambda asked: [predict_batch(first, asked)], (image, []), batchable=True
        )
        assert list(answer.probabilities.values()) == pytest.approx(expected, abs=1e-5)

    try:
        asyncio.run(scene())
    finally:
        service.stop()


def test_without_onnxruntime_pytorch_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.demo.service.find_spec", lambda name: None)
    (served,) = (each for each in load_pretrained_models() if each.name == "convnet-avg-mnist-laptop")
    service = Service([served])
    asyncio.run(service.use_onnxruntime(served.name))
    service.stop()
    assert [each.runtime for each in service.infos] == ["pytorch"]


@pytest.mark.parametrize("enabled", [True, False])
def test_only_models_that_are_asked_are_exported(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, after the first prediction; not at the start."""
    names = ("convnet-avg-mnist-laptop", "capsnet-mnist-laptop")
    served = [each for each in load_pretrained_models() if each.name in names]
    service, exported = Service(served, onnxruntime=enabled), list[str]()

    async def export(name: str) -> None:
        exported.append(name)

    monkeypatch.setattr(service, "use_onnxruntime", export)

    async def scene() -> None:
        await service.warm_up()
        assert exported == []
        for _ in range(2):
            await service.predict(PredictRequest(model=names[0], image=[[[0.0] * 28] * 28]))
            await asyncio.sleep(0)

    try:
        asyncio.run(scene())
    finally:
        service.stop()
    assert exported == [names[0]] * enabled
