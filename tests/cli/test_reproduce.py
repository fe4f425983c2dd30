"""torchcaps reproduce and torchcaps papers, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command

# Random vectors: the one cell of the papers that needs neither a training nor a dataset.
RANDOM = ["reproduce", "choi2019", "table3", "--cell", "random"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_cell_is_measured_once_and_printed_beside_the_papers(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command(*RANDOM, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert "choi2019 table3" in done.stdout
    assert "±" in done.stdout
    assert "2/2" in done.stdout
    assert done.stderr.count("choi2019 table3 random (seed ") == 2
    files = sorted((tmp_path / "results" / "choi2019" / "table3").iterdir())
    assert [file.name for file in files] == ["random-laptop-seed0.json", "random-laptop-seed1.json"]
    result = json.loads(files[0].read_text())
    assert result["environment"]["command"] == f"torchcaps {' '.join(RANDOM)} --seeds 2"
    again = torchcaps_command(*RANDOM, "--seeds", "2")
    assert again.stdout == done.stdout
    assert again.stderr == ""
    listed = {(each["paper"], each["table"]): each for each in json.loads(torchcaps_command("papers", "--json").stdout)}
    assert listed["choi2019", "table3"]["done"] == {"laptop": 2, "paper": 0}


def test_a_plan_changes_nothing(torchcaps_command: Command, tmp_path: Path) -> None:
    planned = torchcaps_command(*RANDOM, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "open" in planned.stdout
    assert "In all about 0 s for one worker" in planned.stdout
    assert not (tmp_path / "results").exists()


def test_when_the_time_is_over_it_says_how_to_go_on(torchcaps_command: Command) -> None:
    stopped = torchcaps_command(*RANDOM, "--seeds", "1", "--budget", "0s")
    assert stopped.returncode == 0, stopped.stderr
    assert "The time is over" in stopped.stderr
    assert "torchcaps reproduce choi2019 table3 --cell random --seeds 1 --budget 0s" in stopped.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gu2012"], "paper 'gu2012' is unknown: did you mean 'gu2021'?"),
        (["gu2021", "table11"], "table of gu2021 'table11' is unknown: did you mean 'table1'?"),
        (["choi2019", "table3", "--cell", "randon"], "did you mean 'random'?"),
        (["gu2021", "--profile", "labtop"], "profile 'labtop' is unknown: did you mean 'laptop'?"),
        (["gu2021", "--budget", "soon"], "duration 'soon' is not one"),
        (["gu2021", "--engine", "slurn", "--jobs", "2"], "engine 'slurn' is unknown: did you mean 'slurm'?"),
    ],
)
def test_a_mistake_is_one_sentence(torchcaps_command: Command, arguments: list[str], message: str) -> None:
    refused = torchcaps_command("reproduce", *arguments)
    assert refused.returncode == 2
    assert message in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_papers_lists_every_table_and_does_not_guess_times(torchcaps_command: Command) -> None:
    listed = torchcaps_command("papers")
    assert listed.returncode == 0, listed.stderr
    assert all(paper in listed.stdout for paper in ("chen2019", "choi2019", "gu2021", "hinton2018", "yang2021"))
    assert "?" in listed.stdout
