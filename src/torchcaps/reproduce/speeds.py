"""How many images a second a network trains on: timed for a few steps on this machine, or once on another.

``speeds.json`` has every network of every spec in both profiles, so that a plan has times before anything was trained;
``python -m benchmarks.training_speeds`` makes it anew.
"""

from __future__ import annotations

import json
import statistics
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from torchcaps.bench.steps import take_turns
from torchcaps.bench.timing import Budget
from torchcaps.environment import processor_name
from torchcaps.files import cache_folder, read_json, write_json
from torchcaps.reproduce.measures.timed import net_of
from torchcaps.reproduce.work import digest
from torchcaps.train import RunConfig

DECIDES_SPEED = ("model", "size", "options", "data", "batch_size")
SHORT = Budget(rounds=5, seconds=5.0)
SHIPPED = files("torchcaps.reproduce") / "speeds.json"


def speed_key(config: RunConfig) -> str:
    """Runs of the same key are equally fast."""
    return key_of(config.model_dump(mode="json"))


def key_of(settings: dict[str, Any]) -> str:
    """The key of settings as a file has them."""
    return json.dumps({name: settings[name] for name in DECIDES_SPEED}, sort_keys=True)


def timed_speed(config: RunConfig) -> float:
    """Of some training steps with random images, timed now."""
    seconds = take_turns({config.model: (net_of(config), "torchcaps")}, "training", SHORT)[config.model]
    return config.batch_size / statistics.median(seconds)


def kept_speed(config: RunConfig, *, may_measure: bool) -> float | None:
    """What was timed on this machine before, else what is timed now and kept, if it may be."""
    key, machine = speed_key(config), f"{processor_name()}, {torch.get_num_threads()} threads"
    kept = cache_folder() / "speeds" / f"{digest([key, machine])}.json"
    if kept.is_file():
        return float(read_json(kept)["images_per_second"])
    if not may_measure:
        return None
    speed = timed_speed(config)
    write_json(kept, {"images_per_second": speed, "machine": machine, "of": json.loads(key)})
    return speed


@cache
def shipped_speeds() -> dict[str, float]:
    """Of every network of the specs, by its key, as it was on another machine."""
    return {key_of(row): row["images_per_second"] for row in _shipped()["rows"]}


def shipped_machine() -> str:
    """Which machine that was, in words."""
    environment = _shipped()["environment"]
    return f"{environment['processor']} with {environment['threads']} threads"


@cache
def _shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return found
