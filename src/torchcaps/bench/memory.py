"""Memory of a training step, and what the tuned allocator saves; each measured in a fresh process.

For memory, the allocator of that process returns every freed block to the system, so that the process is as large as
what is in use. A first step, which is not counted, allocates everything that stays: weights, Adam's moments, compiled
code.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.timing import TimingBudget, num_threads, time_interleaved
from torchcaps.bench.workload import NetSpec, Workload
from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.progress import progress_bar
from torchcaps.routing.dynamic import route_plainly
from torchcaps.runtime import tune_process

EXACT = {"TORCHCAPS_MALLOC": "0", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
ALLOCATOR_BUDGET = TimingBudget(rounds=7)  # of each process


def step_memory(net: NetSpec, form: str, *, threads: int = 1) -> dict[str, int]:
    """Bytes of a training step beyond what stays: ``activations``, kept by the forward pass, and ``peak``.

    ``process`` is the peak memory of the whole process, including the interpreter and PyTorch.
    """
    try:
        measured: dict[str, int] = _run({"net": asdict(net), "form": form, "threads": threads}, EXACT)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or [f"the process exited with code {error.returncode}"]
        raise TorchcapsError(
            f"the memory of {net.model} ({form}, batch {net.batch}) was not measured: {last[0]}. Try a smaller --batch"
        ) from error
    return measured


def compare_allocators(rounds: int) -> dict[str, dict[str, float]]:
    """For each job: median seconds with and without the tuned allocator, and the median of the ratios."""
    pairs = []
    with progress_bar("processes", 2 * rounds) as advance:
        for _ in range(rounds):
            pair = []
            for setting in ("1", "0"):
                pair.append(_run({}, {"TORCHCAPS_MALLOC": setting}))
                advance(1)
            pairs.append(pair)
    return {
        name: {
            "tuned_seconds": statistics.median(tuned[name] for tuned, _ in pairs),
            "plain_seconds": statistics.median(plain[name] for _, plain in pairs),
            "ratio": statistics.median(tuned[name] / plain[name] for tuned, plain in pairs),
        }
        for name in pairs[0][0]
    }


def _run(task: dict[str, Any], environment: dict[str, str]) -> Any:
    """Run a task in a fresh process and return what it measured."""
    command = [sys.executable, "-m", "torchcaps.bench.memory", json.dumps(task)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_in_process(net: NetSpec, form: str) -> dict[str, int]:
    """Measure a training step in this process, which should be fresh; see :func:`step_memory`."""
    workload = Workload(net, form)
    workload.train_step()
    workload.optimizer.zero_grad()
    before = _reset_peak()
    loss, output = workload.forward()
    kept = _resident() - before
    del output
    workload.backward(loss)
    workload.optimizer.step()
    peak = _peak()
    return {"activations": max(kept, 0), "peak": max(peak - before, 0), "process": peak}


def time_allocator_jobs() -> dict[str, float]:
    """Median seconds of each job in this process, on one thread."""
    tune_process()
    with num_threads(1):
        values, votes = torch.rand(10_000_000), torch.randn(32, 1, 1152, 10, 16, requires_grad=True)
        step = Workload(NetSpec("capsnet", size="laptop", batch=32), "torchcaps")
        jobs: dict[str, Callable[[], object]] = {
            "elementwise chain, 10 million floats": lambda: ((values * 2 + 1).sin() * values).sum(),
            "plain dynamic routing, paper size": lambda: route_plainly(votes, 3, None, squash).pose.sum().backward(),
            "laptop CapsNet step": step.train_step,
        }
        return {name: statistics.median(times) for name, times in time_interleaved(jobs, ALLOCATOR_BUDGET).items()}


def _resident() -> int:
    """Resident memory of the process in bytes; where the system does not report it, the peak."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _peak()


def _peak() -> int:
    """Peak memory of the process in bytes.

    VmHWM is preferred to getrusage, which may still count the parent process after a fork.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        try:
            import resource
        except ImportError as error:  # on Windows
            raise TorchcapsError("this system does not report the peak memory of a process") from error
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _reset_peak() -> int:
    """Reset the peak where the system can, and return the memory in use."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return _peak()
    return _resident()


def _main(task: dict[str, Any]) -> None:
    if task:
        torch.set_num_threads(task["threads"])
        print(json.dumps(measure_in_process(NetSpec(**task["net"]), task["form"])))
    else:
        print(json.dumps(time_allocator_jobs()))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
