"""Measurements in fresh processes."""

from __future__ import annotations

import pytest

from torchcaps.bench.memory import compare_allocators, step_memory
from torchcaps.bench.workload import NetSpec
from torchcaps.errors import TorchcapsError

pytestmark = pytest.mark.process


def test_memory_of_a_form_that_stores_all_votes_is_greater() -> None:
    net = NetSpec("matrix-capsnet", "laptop", 16, options={"types": (4, 4, 4)})
    ours, theirs = step_memory(net, "torchcaps"), step_memory(net, "straightforward")
    assert set(ours) == {"activations", "peak", "process"}
    assert theirs["activations"] > 2 * ours["activations"]
    assert theirs["peak"] >= theirs["activations"]


def test_a_failure_in_the_other_process_is_one_sentence() -> None:
    with pytest.raises(TorchcapsError, match=r"was not measured: .*setting of capsnet"):
        step_memory(NetSpec("capsnet", options={"filterz": 3}), "plain")


@pytest.mark.slow
def test_allocators_are_compared_job_by_job() -> None:
    jobs = compare_allocators(1)
    assert "laptop CapsNet step" in jobs
    assert all(job["ratio"] == job["tuned_seconds"] / job["plain_seconds"] > 0 for job in jobs.values())
