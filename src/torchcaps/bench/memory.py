"""Memory of a step, in a process of its own: nothing that ran before can hide in what is measured.

In that process the allocator gives memory back at every free, so that the process is as large as what is in use. The
first step, which is not counted, leaves everything that stays: weights, moments of Adam, compiled code.
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

import torch

from torchcaps.bench.forms import Net, Subject
from torchcaps.bench.timing import Budget, Seconds, interleaved, threads
from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.progress import progress_bar
from torchcaps.routing.dynamic import route_plainly
from torchcaps.runtime import tune_process

# MERGED What keeping freed memory gives.
EXACT = {"TORCHCAPS_MALLOC": "0", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def step_memory(net: Net, form: str, *, threads: int = 1) -> dict[str, int]:
    """Bytes of a training step beyond what stays: ``activations``, kept by the forward pass, and the ``peak``.

    ``process`` is all memory that the process had at its peak, the interpreter and PyTorch included.
    """
    task = json.dumps({"net": asdict(net), "form": form, "threads": threads})
    command = [sys.executable, "-m", "torchcaps.bench.memory", task]
    done = subprocess.run(command, env=os.environ | EXACT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode}"]
        raise TorchcapsError(
            f"the memory of {net.model} ({form}, batch {net.batch}) was not measured: {last[0]}. "
            "A smaller --batch needs less"
        )
    measured: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure_here(net: Net, form: str) -> dict[str, int]:
    """The same in this process, which should be a fresh one."""
    from torchcaps.bench.forms import Subject

    subject = Subject(net, form)
    subject.train_step()
    subject.optimizer.zero_grad()
    before = _forget_peak()
    loss, output = subject.forward()
    kept = _resident() - before
    del output
    subject.backward(loss)
    subject.optimizer.step()
    most = _peak()
    return {"activations": max(kept, 0), "peak": max(most - before, 0), "process": most}


def _resident() -> int:
    """Bytes of memory that the process has now; where the system does not tell, the most it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _peak()


def _peak() -> int:
    """The most bytes that the process had.

    Linux's own line comes before getrusage, which after a start may still count the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        try:
            import resource
        except ImportError as error:  # on Windows
            raise TorchcapsError("this system does not tell how much memory a process had") from error
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _forget_peak() -> int:
    """Let the peak start anew from here, where the system can, and return the memory in use."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return _peak()
    return _resident()


def _main() -> None:
    import torch

    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    print(json.dumps(measure_here(Net(**task["net"]), task["form"])))


if __name__ == "__main__":
    _main()

INSIDE = Budget(rounds=7)  # of one process


def compare_allocators(rounds: int) -> dict[str, dict[str, float]]:
    """For each job: median seconds with and without the tuned allocator, and the median of the ratios."""
    pairs = []
    with progress_bar("processes", 2 * rounds) as advance:
        for _ in range(rounds):
            pair = []
            for setting in ("1", "0"):
                pair.append(_measure(setting))
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


def _measure(setting: str) -> dict[str, float]:
    """Median seconds of each job in a process with or without the tuned allocator."""
    command = [sys.executable, "-m", "torchcaps.bench.allocator"]
    environment = os.environ | {"TORCHCAPS_MALLOC": setting}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def time_here() -> Seconds:
    """Seconds of each job in this process, on one thread."""
    tune_process()
    with threads(1):
        numbers, votes = torch.rand(10_000_000), torch.randn(32, 1, 1152, 10, 16, requires_grad=True)
        step = Subject(Net("capsnet", size="laptop", batch=32), "torchcaps")
        jobs: dict[str, Callable[[], object]] = {
            "elementwise chain, 10 million floats": lambda: ((numbers * 2 + 1).sin() * numbers).sum(),
            "plain dynamic routing, paper size": lambda: route_plainly(votes, 3, None, squash).pose.sum().backward(),
            "laptop CapsNet step": step.train_step,
        }
        return interleaved(jobs, INSIDE)


if __name__ == "__main__":
    print(json.dumps({name: statistics.median(values) for name, values in time_here().items()}))
