"""Steps of this tree against those of another commit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchcaps.bench.against import StepWorker, checked_out, compare_with_commit, merge_rows
from torchcaps.bench.steps import describe_net
from torchcaps.bench.timing import TimingBudget
from torchcaps.bench.workload import NetSpec
from torchcaps.cli.bench import select_nets
from torchcaps.environment import source_commit
from torchcaps.errors import TorchcapsError

ROW = {"model": "lenet", "size": "laptop", "batch": 2, "image": [1, 28, 28], "task": "training", "against": "a"}
pytestmark = pytest.mark.skipif(source_commit() is None, reason="needs a checkout of the repository")


@pytest.mark.slow
def test_both_trees_are_timed_in_turn() -> None:
    """Against its own commit: the workers load different folders, and both give times."""
    (row,) = compare_with_commit("HEAD", [NetSpec("lenet", "laptop", 2)], ["training"], TimingBudget(rounds=3))
    assert row["times faster"]["rounds"] == 3
    assert 0.05 < row["times faster"]["median"] < 20
    assert set(row["seconds"]) == {"this", "other"}
    assert len(row["against"]) == 40


def test_a_commit_is_checked_out_and_removed() -> None:
    with checked_out("HEAD") as (commit, folder):
        assert (folder / "torchcaps" / "bench" / "workload.py").is_file()
        assert source_commit().startswith(commit)
    assert not folder.exists()


def test_an_unknown_commit_is_an_error_of_one_sentence() -> None:
    with pytest.raises(TorchcapsError, match="a commit of it; git said"), checked_out("no-such-commit"):
        pass


def test_a_tree_without_the_benchmark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "torchcaps").mkdir()
    (tmp_path / "torchcaps" / "__init__.py").write_text("", encoding="utf-8")
    worker = StepWorker(tmp_path, "commit 0000")
    try:
        with pytest.raises(TorchcapsError, match=r"commit 0000 were not measured: .*No module named"):
            worker.prepare(NetSpec("lenet"), "training")
    finally:
        worker.close()


def test_networks_with_settings_have_their_own_rows() -> None:
    given = ["pose=vector", "routing_options.activation=mixing"]
    nets = [*select_nets("matrix-capsnet", "laptop", 2, options=given), NetSpec("matrix-capsnet", "laptop")]
    assert nets[0].options == {"pose": "vector", "routing_options": {"activation": "mixing"}}
    named = "matrix-capsnet, pose=vector, routing_options.activation=mixing"
    assert [describe_net(net)["model"] for net in nets] == [named, "matrix-capsnet"]
    with pytest.raises(TorchcapsError, match="settings of the models here, not of the training: weight_decay"):
        select_nets("matrix-capsnet", "laptop", 2, options=["weight_decay=3"])


def test_rows_of_other_networks_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "against.json"
    merge_rows(path, [ROW | {"times faster": 1}])
    merge_rows(path, [ROW | {"batch": 4, "times faster": 2}])
    merge_rows(path, [ROW | {"times faster": 3}])
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(row["batch"], row["times faster"]) for row in rows] == [(2, 3), (4, 2)]
