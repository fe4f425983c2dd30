"""Latency of the demo: start-up time, and single requests to the pretrained CapsNet, measured from a second process.

Run: python -m benchmarks.demo_latency [--requests 300]; writes results/bench/demo-latency.json. Keep the machine idle.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
from benchmarks.serving import running_service

from torchcaps.bench.steps import write_measurement
from torchcaps.pretrained import load_samples
from torchcaps.progress import progress_bar

NAME = "capsnet-mnist-laptop"


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return {name: round(1000 * cuts[place], 2) for name, place in (("p50", 49), ("p95", 94), ("p99", 98))}


def time_requests(client: httpx.Client, path: str, requests: list[dict[str, Any]], count: int) -> dict[str, float]:
    """Send requests one after the other, after a warm-up."""
    seconds = []
    with progress_bar(path, count) as advance:
        for number in range(-20, count):  # negative: warm-up
            began = time.perf_counter()
            client.post(path, json=requests[number % len(requests)]).raise_for_status()
            if number >= 0:
                seconds.append(time.perf_counter() - began)
                advance(1)
    return quantiles(seconds)


def measure_starts(count: int) -> dict[str, Any]:
    """Seconds from the command to the first response, measured several times."""
    seconds, processor = [], []
    with progress_bar("starts", count) as advance:
        for _ in range(count):
            with running_service("demo", "--no-browser", path="/") as service:
                seconds.append(round(service.seconds_to_start, 2))
                processor.append(service.processor_seconds)
            advance(1)
    return {"median (s)": statistics.median(seconds), "each (s)": seconds, "of the processor (s)": processor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    given = parser.parse_args()
    samples = load_samples("mnist")
    assert samples is not None
    started = measure_starts(given.starts)
    with (
        running_service("demo", "--no-browser") as service,
        httpx.Client(base_url=service.address, timeout=60) as client,
    ):
        asked = [{"model": NAME, "image": (image[0] / 255).tolist()} for image in samples.images]
        poses = [client.post("/api/predict", json=each | {"include": ["pose"]}).json() for each in asked]
        drawn = [{"model": NAME, "pose": each["pose"], "label": each["label"]} for each in poses]
        swept = [each | {"sweep": {"reach": 0.25, "steps": 11}} for each in drawn]
        found = {
            "start": started,
            "questions": given.requests,
            "milliseconds": {
                "predict": time_requests(client, "/api/predict", asked, given.requests),
                "reconstruct": time_requests(client, "/api/reconstruct", drawn, given.requests),
                "reconstruct, all strips": time_requests(client, "/api/reconstruct", swept, given.requests // 3),
                "routing": time_requests(client, "/api/routing", asked, given.requests // 3),
                "attack, fgsm": time_requests(client, "/api/attack", [each | {"epsilon": 0.1} for each in asked], 50),
            },
        }
    print(write_measurement(given.out, "demo-latency", found), found)


if __name__ == "__main__":
    main()
