"""Measure steps of every model of the specs against torch.compile, at its batch in profile desk and paper.

Run: python -m benchmarks.compiled_steps (about two hours), or with the names of some models.
Each network runs in a process of its own on one thread, in both forms in turn. Times are CPU times, so that the machine
need not be idle; those of the compilation include the C++ compiler. Writes results/bench/step-compiled-specs.json after
every network, and keeps the rows of other networks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_speeds import every_network

from torchcaps.bench.steps import describe_net, write_measurement
from torchcaps.bench.timing import TimingBudget, num_threads, quartiles, ratio, time_interleaved
from torchcaps.bench.workload import NetSpec, Workload
from torchcaps.environment import source_commit
from torchcaps.files import read_json
from torchcaps.progress import progress_bar
from torchcaps.reproduce.estimate import images_shown
from torchcaps.reproduce.measures.cost import bench_net
from torchcaps.runtime import tune_process
from torchcaps.train import RunConfig, resolve

TARGET = Path("results/bench/step-compiled-specs.json")
PROFILES = ("desk", "paper")
TASKS = ("training", "inference")
BUDGET = TimingBudget(rounds=7, seconds=15.0)
SECONDS = 600.0  # after which a network is given up


def networks(models: list[str]) -> dict[tuple[str, str], RunConfig]:
    """Return the first training of each model in each profile."""
    found: dict[tuple[str, str], RunConfig] = {}
    for profile in PROFILES:
        for config in every_network(1, [profile]).values():
            if not models or config.model in models:
                found.setdefault((config.model, profile), config)
    return found


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measure(net: NetSpec, task: str, memory: int) -> dict[str, Any]:
    """Time both forms of a network in turn, and the compilation, with at most this many bytes of memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with num_threads(1):
        torch.set_flush_denormal(True)
        loads = {form: Workload(net, form) for form in ("torchcaps", "compiled")}
        jobs = {form: load.train_step if task == "training" else load.infer for form, load in loads.items()}
        began = cpu_seconds()
        jobs["compiled"]()
        compilation = cpu_seconds() - began
        jobs["compiled"]()  # may compile again, for gradients that are there already
        seconds = time_interleaved(jobs, BUDGET, f"{net.model}, {task}", time.process_time)
    return {
        "seconds": {form: quartiles(values) for form, values in seconds.items()},
        "times ours": {"compiled": ratio(seconds, "compiled", "torchcaps")},
        "compilation_seconds": compilation,
    }


def measure_in_process(config: RunConfig, task: str, memory: int) -> dict[str, Any]:
    """Run :func:`measure` in a new process with an empty cache of compiled code; return why if it fails."""
    command = [sys.executable, "-m", "benchmarks.compiled_steps", "--measure", config.model_dump_json()]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        try:
            done = subprocess.run(
                [*command, "--task", task, "--memory", str(memory)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"seconds": {}, "note": f"not measured: longer than {SECONDS:.0f} s"}
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"seconds": {}, "note": f"not measured: {reason[:200]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="these models alone")
    parser.add_argument("--profile", choices=PROFILES, help="this profile alone")
    parser.add_argument("--task", choices=TASKS, help="this task alone")
    parser.add_argument("--memory", type=int, default=6 * 2**30, help="bytes that a process may allocate")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        tune_process()
        print(json.dumps(measure(bench_net(resolve(**json.loads(given.measure))), given.task, given.memory)))
        return
    rows = {}
    if TARGET.is_file():
        rows = {(row["model"], row["profile"], row["task"]): row for row in read_json(TARGET)["rows"]}
    listed = {
        (*key, task): config
        for key, config in networks(given.models).items()
        for task in TASKS
        if given.profile in (None, key[1]) and given.task in (None, task)
    }
    with progress_bar("networks", len(listed)) as advance:
        for (model, profile, task), config in listed.items():
            net = bench_net(config)
            rows[model, profile, task] = {
                **describe_net(net),
                "model": model,
                "options": net.options,
                "profile": profile,
                "task": task,
                "threads": 1,
                "commit": source_commit(),
                "steps": round(images_shown(config) / config.batch_size),
                **measure_in_process(config, task, given.memory),
            }
            write_measurement(TARGET.parent, TARGET.stem, {"threads": 1, "rows": list(rows.values())})
            advance(1)


if __name__ == "__main__":
    main()
