"""Compare the speed of this source tree with that of another commit: steps of both, timed in turn.

The other commit is checked out to a temporary folder. Each tree runs in a worker process on one thread; the workers
take turns, so that noise affects both equally, and the ratio is the median over pairs of neighboring steps. Seconds
are CPU time, which excludes the time that a worker waits for a core.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torchcaps
from torchcaps.bench.steps import describe_net, write_measurement
from torchcaps.bench.timing import Seconds, TimingBudget, quartiles, ratio, time_interleaved
from torchcaps.bench.workload import NetSpec
from torchcaps.environment import source_commit
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.progress import progress_bar

WARMUP = 2  # steps: compilation and autotuning happen in the first one
# Imports only what earlier commits have, too. Each line of input is answered by a line of output.
WORKER = """
import json, sys, time
answers, sys.stdout = sys.stdout, sys.stderr
from torchcaps.runtime import tune_process
tune_process()
import torch
from torchcaps.bench.workload import NetSpec, Workload
torch.set_num_threads(1)
torch.set_flush_denormal(True)
step = None
for line in sys.stdin:
    request = json.loads(line)
    if "net" in request:
        step = None  # free the network before
        workload = Workload(NetSpec(**request["net"]), "torchcaps")
        step = workload.train_step if request["task"] == "training" else workload.infer
    began = time.process_time()
    for _ in range(request["steps"]):
        step()
    print(json.dumps(time.process_time() - began), file=answers, flush=True)
"""


class StepWorker:
    """A process that times steps with the package in a source tree."""

    def __init__(self, tree: Path, name: str) -> None:
        self.name = name
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def prepare(self, net: NetSpec, task: str) -> None:
        """Build a network and run the warm-up."""
        self._ask({"net": asdict(net), "task": task, "steps": WARMUP})

    def run(self, steps: int = 1) -> float:
        """CPU seconds of a number of steps."""
        return self._ask({"steps": steps})

    def _ask(self, request: dict[str, Any]) -> float:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:] or [f"exit code {self.process.returncode}"]
            raise TorchcapsError(f"the steps of {self.name} were not measured: {last[0]}")
        return float(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def compare_with_commit(
    revision: str, nets: Sequence[NetSpec], tasks: Sequence[str], budget: TimingBudget
) -> Iterator[dict[str, Any]]:
    """One row per network and task: CPU seconds of both trees, and how many times faster this tree is."""
    own_tree = Path(torchcaps.__file__).parents[1]
    with contextlib.ExitStack() as held:
        commit, other_tree = held.enter_context(checked_out(revision))
        workers = {"this": StepWorker(own_tree, "this tree"), "other": StepWorker(other_tree, f"commit {commit[:10]}")}
        for worker in workers.values():
            held.callback(worker.close)
        advance = held.enter_context(progress_bar("networks", len(nets) * len(tasks)))
        for net in nets:
            for task in tasks:
                seconds = time_in_turn(workers, net, task, budget)
                yield {
                    **describe_net(net),
                    "task": task,
                    "threads": 1,
                    "commit": source_commit(),
                    "against": commit,
                    "seconds": {name: quartiles(values) for name, values in seconds.items()},
                    "times faster": ratio(seconds, "other", "this"),
                }
                advance(1)


def time_in_turn(workers: dict[str, StepWorker], net: NetSpec, task: str, budget: TimingBudget) -> Seconds:
    """CPU seconds of each worker in each round."""
    for worker in workers.values():
        worker.prepare(net, task)
    found: Seconds = {name: [] for name in workers}
    jobs = {name: lambda name=name: found[name].append(workers[name].run()) for name in workers}
    time_interleaved(jobs, budget, f"{net.model}, {task}")
    return {name: values[1:] for name, values in found.items()}  # the first round is the warm-up


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[tuple[str, Path]]:
    """Check out a commit of this repository to a temporary folder; yield its hash and the folder of its packages."""
    here = Path(torchcaps.__file__).parent
    commit = _git(here, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    root = Path(_git(here, "rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory(prefix="torchcaps-against-") as folder:
        tree = Path(folder) / "tree"
        _git(root, "worktree", "add", "--detach", str(tree), commit)
        try:
            yield commit, tree / here.parent.relative_to(root)
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise TorchcapsError("--against needs git, which was not found: install git") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["no message"]
        raise TorchcapsError(
            f"--against needs a checkout of torchcaps and a commit of it; git said: {last[0]}"
        ) from error
    return done.stdout.strip()


def merge_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a result file; those of other networks, tasks and commits in the file are kept."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return *(row[name] for name in ("model", "size", "batch", "task", "against")), tuple(row["image"])

    known = {key(row): row for row in (read_json(path)["rows"] if path.is_file() else [])}
    known |= {key(row): row for row in rows}
    write_measurement(path.parent, path.stem, {"threads": 1, "rows": list(known.values())})
