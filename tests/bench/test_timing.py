from __future__ import annotations

import pytest
import torch

from torchcaps.bench.timing import FEWEST_ROUNDS, TimingBudget, num_threads, quartiles, ratio, time_interleaved


def test_all_jobs_run_in_every_round_and_once_before() -> None:
    calls: list[str] = []
    seconds = time_interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, TimingBudget(rounds=9))
    rounds = [tuple(calls[index : index + 2]) for index in range(0, len(calls), 2)]
    assert len(rounds) == 10
    assert set(rounds) == {("a", "b"), ("b", "a")}, "both jobs in every round, in both orders"
    assert [len(values) for values in seconds.values()] == [9, 9]


def test_no_new_round_after_the_time_budget() -> None:
    seconds = time_interleaved({"a": lambda: None}, TimingBudget(rounds=1000, seconds=0))
    assert len(seconds["a"]) == FEWEST_ROUNDS


def test_summary_and_ratio() -> None:
    assert quartiles([5.0]) == {"median": 5.0, "lower_quartile": 5.0, "upper_quartile": 5.0, "rounds": 1}
    found = ratio({"a": [1.0, 20.0, 3.0], "b": [1.0, 10.0, 1.0]}, "a", "b")
    assert (found["median"], found["rounds"]) == (2.0, 3)


def test_number_of_threads_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail_on_more() -> None:
        with num_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail_on_more()
    assert torch.get_num_threads() == before
