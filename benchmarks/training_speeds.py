"""Measure how fast every network of the specs trains: networks of profile desk on one thread, the others on all.

Run: python -m benchmarks.training_speeds (about an hour; keep the machine idle), or for some papers and one profile:
python -m benchmarks.training_speeds gu2021 --profile desk (on one thread the time is CPU time, so that the machine need
not be idle). Updates src/torchcaps/reproduce/speeds.json, which is part of the package, after every network. Networks
that are not in the file come first, those of profile desk before the others; then those that were timed on another
processor or at another commit. It may be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchcaps.bench.timing import num_threads
from torchcaps.environment import describe_environment
from torchcaps.files import read_json, write_json
from torchcaps.progress import progress_bar
from torchcaps.reproduce.estimate import measure_speed, settings_key, speed_key, with_baselines
from torchcaps.reproduce.jobs import THREADS, plan_jobs
from torchcaps.reproduce.spec import PROFILES, Profile, list_papers, load_spec
from torchcaps.train import RunConfig

TARGET = Path("src/torchcaps/reproduce/speeds.json")


def every_network(
    threads: int, profiles: Iterable[Profile] = PROFILES, papers: Iterable[str] = ()
) -> dict[tuple[str, int], RunConfig]:
    """Return a configuration for each key and number of threads; ``threads`` is that of the machine."""
    return {
        (speed_key(training.config), THREADS.get(profile, threads)): training.config
        for paper in papers or list_papers()
        for profile in profiles
        for work in plan_jobs(load_spec(paper), profile, seeds=1)
        for training in with_baselines(work)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*", help="networks of these papers alone")
    parser.add_argument("--profile", choices=PROFILES, help="networks of this profile alone")
    given = parser.parse_args()
    written: dict[str, Any] = read_json(TARGET) if TARGET.is_file() else {"rows": []}
    environment = describe_environment()
    if "environment" in written:  # a process on one core keeps the reference machine's number of threads
        environment["threads"] = max(environment["threads"], written["environment"]["threads"])
    origin = {name: environment[name] for name in ("processor", "commit")}
    networks = every_network(environment["threads"])
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for row in written["rows"]:
        full = {name: written["environment"][name] for name in ("threads", "processor")} | row
        place = (settings_key(full), full["threads"])
        if place in networks:
            rows[place] = full
    profiles = [given.profile] if given.profile else PROFILES
    chosen = every_network(environment["threads"], profiles, given.papers)
    todo = [place for place in chosen if not origin.items() <= rows.get(place, {}).items()]
    todo.sort(key=lambda place: (place in rows, place[1] != 1, place))
    with progress_bar("networks", len(todo)) as advance:
        for key, threads in todo:
            with num_threads(threads):
                speed = round(measure_speed(networks[key, threads]), 2)
            rows[key, threads] = {**json.loads(key), **origin, "threads": threads, "images_per_second": speed}
            listed = [rows[each] for each in sorted(rows)]
            write_json(TARGET, {"rows": listed, "environment": environment})
            advance(1)


if __name__ == "__main__":
    main()
