"""How fast every network trains that a paper's spec names, in both profiles: what plans reckon with at first.

Run: python -m benchmarks.training_speeds (a quarter of an hour; keep the machine quiet). Writes
src/torchcaps/reproduce/speeds.json, which is part of the package, after every network: what is in it is not timed
again, so delete it to begin anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchcaps.environment import describe_environment
from torchcaps.files import read_json, write_json
from torchcaps.progress import progress_bar
from torchcaps.reproduce.estimate import measure_speed, settings_key, speed_key, with_baselines
from torchcaps.reproduce.jobs import plan_jobs
from torchcaps.reproduce.spec import PROFILES, list_papers, load_spec
from torchcaps.train import RunConfig

TARGET = Path("src/torchcaps/reproduce/speeds.json")


def every_network() -> dict[str, RunConfig]:
    """A configuration for each key."""
    return {
        speed_key(training.config): training.config
        for paper in list_papers()
        for profile in PROFILES
        for work in plan_jobs(load_spec(paper), profile, seeds=1)
        for training in with_baselines(work)
    }


def main() -> None:
    networks = every_network()
    before: list[dict[str, Any]] = read_json(TARGET)["rows"] if TARGET.is_file() else []
    rows = {settings_key(row): row for row in before if settings_key(row) in networks}
    with progress_bar("networks", len(networks) - len(rows)) as advance:
        for key, config in sorted(networks.items()):
            if key not in rows:
                rows[key] = {**json.loads(key), "images_per_second": round(measure_speed(config), 2)}
                listed = [rows[each] for each in sorted(rows)]
                write_json(TARGET, {"rows": listed, "environment": describe_environment()})
                advance(1)


if __name__ == "__main__":
    main()
