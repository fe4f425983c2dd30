"""The request queue: batching, order, limits, and isolation of errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from torchcaps.demo.service import QueueFullError, Worker


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
