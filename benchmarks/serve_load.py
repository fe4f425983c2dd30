"""Load test of ``torchcaps serve``: many concurrent clients for a minute, from a second process.

Run: python -m benchmarks.serve_load [--clients 50] [--seconds 60] [--idle 300] [--command demo]; writes
results/bench/serve.json, or serve-idle.json with ``--idle``. Keep the machine idle. Every client sends its next request
as soon as it has received a response; the memory of the service is read every second. Idle connections send nothing,
and are reopened when the service closes them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from benchmarks.demo_latency import NAME, quantiles
from benchmarks.serving import running_service

from torchcaps.bench.steps import write_measurement
from torchcaps.pretrained import load_samples
from torchcaps.progress import progress_bar

WARM_UP = 5  # seconds, after which every client has received a response


async def send_until(client: httpx.AsyncClient, requests: list[bytes], end: float, seen: dict[str, Any]) -> None:
    """One client: send requests one after the other until the end."""
    number = 0
    headers = {"content-type": "application/json"}
    while time.perf_counter() < end:
        began = time.perf_counter()
        try:
            answer = await client.post("/api/predict", content=requests[number % len(requests)], headers=headers)
            seen["status"][str(answer.status_code)] += 1
        except httpx.TransportError as error:
            seen["status"][type(error).__name__] += 1
        seen["seconds"].append(time.perf_counter() - began)
        number += 1


async def stay_idle(address: str, end: float, seen: dict[str, Any]) -> None:
    """One idle connection, reopened whenever it is closed."""
    url = httpx.URL(address)
    while (left := end - time.perf_counter()) > 0:
        try:
            reader, writer = await asyncio.open_connection(url.host, url.port)
            seen["idle opened"] += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), left)
            writer.close()
        except OSError as error:
            seen["idle errors"][type(error).__name__] += 1
        await asyncio.sleep(1)  # do not reconnect in a busy loop


async def memory_of(client: httpx.AsyncClient) -> float:
    """Resident memory of the service in megabytes, from its metrics."""
    text = (await client.get("/metrics")).text
    found = re.search(r"^process_resident_memory_bytes (\S+)", text, re.MULTILINE)
    assert found, "the service does not report its memory on this system"
    return round(float(found[1]) / 1e6, 1)


async def watch(client: httpx.AsyncClient, seconds: float) -> dict[str, float]:
    """Memory of the service about every second, until the end."""
    began, memory = time.perf_counter(), {}
    with progress_bar("load test", int(seconds)) as advance:
        while (now := time.perf_counter() - began) < seconds:
            memory[f"{now:.0f} s"] = await memory_of(client)
            advance(1)
            await asyncio.sleep(1)
    return memory


async def measure(address: str, clients: int, seconds: float, idle: int = 0) -> dict[str, Any]:
    """Run the clients; return throughput, latency, status codes and memory."""
    samples = load_samples("mnist")
    assert samples is not None
    requests = [
        httpx.Request("POST", address, json={"model": NAME, "image": (image[0] / 255).tolist()}).read()
        for image in samples.images
    ]
    seen: dict[str, Any] = {"status": Counter(), "seconds": [], "idle opened": 0, "idle errors": Counter()}
    load = [round(value, 2) for value in os.getloadavg()]  # other work on the machine increases the latency
    limits = httpx.Limits(max_connections=clients + 1)
    async with httpx.AsyncClient(base_url=address, timeout=30, limits=limits) as client:
        at_start = await memory_of(client)
        await client.post("/api/predict", content=requests[0], headers={"content-type": "application/json"})
        idle_end = time.perf_counter() + bool(idle) + seconds
        waiting = [asyncio.create_task(stay_idle(address, idle_end, seen)) for _ in range(idle)]
        await asyncio.sleep(bool(idle))  # wait until all are connected
        end = time.perf_counter() + seconds
        memory, *_ = await asyncio.gather(
            watch(client, seconds), *(send_until(client, requests, end, seen) for _ in range(clients)), *waiting
        )
        at_end = await memory_of(client)
        batches = batch_sizes((await client.get("/metrics")).text)
    warm = next((value for second, value in memory.items() if float(second.split()[0]) >= WARM_UP), at_end)
    idle_found = {"connections": idle, "opened": seen["idle opened"], "errors": dict(seen["idle errors"])}
    return ({"idle": idle_found} if idle else {}) | {
        "load average before": load,
        "clients": clients,
        "seconds": seconds,
        "answers": len(seen["seconds"]),
        "answers per second": round(len(seen["seconds"]) / seconds, 1),
        "milliseconds": quantiles(seen["seconds"]),
        "status": dict(seen["status"]),
        "images in a batch": batches,
        "memory (MB)": {
            "at the start": at_start,
            f"after {WARM_UP} s": warm,
            "at the end": at_end,
            "grown since then (%)": round(100 * (at_end / warm - 1), 2),
            "in between": memory,
        },
    }


def batch_sizes(text: str) -> float:
    """Mean number of requests per batch of the model."""
    values = {line.split("{")[0]: float(line.split()[1]) for line in text.splitlines() if f'model="{NAME}"' in line}
    return round(values["torchcaps_answered_total"] / values["torchcaps_batches_total"], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=int, default=0, help="number of idle connections")
    parser.add_argument("--command", choices=["serve", "demo"], default="serve")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    given = parser.parse_args()
    command = ["demo", "--no-browser"] if given.command == "demo" else ["serve"]
    with running_service(*command) as service:
        found = asyncio.run(measure(service.address, given.clients, given.seconds, given.idle))
    print(write_measurement(given.out, "serve-idle" if given.idle else "serve", found), found)


if __name__ == "__main__":
    main()
