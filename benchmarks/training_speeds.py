"""Measure how fast every network of the specs trains: networks of profile desk on one thread, the others on all.

Run: python -m benchmarks.training_speeds (about an hour; keep the machine idle). Updates
src/torchcaps/reproduce/speeds.json, which is part of the package, after every network. Networks that are not in the
file come first, those of profile desk before the others; then those that were timed on another processor. It may be
stopped at any time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.timing import num_threads
from torchcaps.environment import describe_environment, processor_name
from torchcaps.files import read_json, write_json
from torchcaps.progress import progress_bar
from torchcaps.reproduce.estimate import measure_speed, settings_key, speed_key, with_baselines
from torchcaps.reproduce.jobs import THREADS, plan_jobs
from torchcaps.reproduce.spec import PROFILES, list_papers, load_spec
from torchcaps.train import RunConfig

TARGET = Path("src/torchcaps/reproduce/speeds.json")


def every_network(threads: int) -> dict[tuple[str, int], RunConfig]:
    """Return a configuration for each key and number of threads; ``threads`` is that of the machine."""
    return {
        (speed_key(training.config), THREADS.get(profile, threads)): training.config
        for paper in list_papers()
        for profile in PROFILES
        for work in plan_jobs(load_spec(paper), profile, seeds=1)
        for training in with_baselines(work)
    }


def main() -> None:
    machine, processor = torch.get_num_threads(), processor_name()
    networks = every_network(machine)
    written: dict[str, Any] = read_json(TARGET) if TARGET.is_file() else {"rows": []}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for row in written["rows"]:
        full = {name: written["environment"][name] for name in ("threads", "processor")} | row
        place = (settings_key(full), full["threads"])
        if place in networks:
            rows[place] = full
    todo = [place for place in networks if rows.get(place, {}).get("processor") != processor]
    todo.sort(key=lambda place: (place in rows, place[1] != 1, place))
    with progress_bar("networks", len(todo)) as advance:
        for key, threads in todo:
            with num_threads(threads):
                speed = round(measure_speed(networks[key, threads]), 2)
            origin = {"threads": threads, "processor": processor}
            rows[key, threads] = {**json.loads(key), **origin, "images_per_second": speed}
            listed = [rows[each] for each in sorted(rows)]
            write_json(TARGET, {"rows": listed, "environment": describe_environment()})
            advance(1)


if __name__ == "__main__":
    main()
