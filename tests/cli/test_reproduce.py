"""torchcaps reproduce and torchcaps papers: what they print and write, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_bench import Run, run  # noqa: F401  (a fixture)
from tests.cli.test_explain import Typed, typed  # noqa: F401  (a fixture)
from torchcaps.reproduce.estimate import format_duration
from torchcaps.reproduce.jobs import plan_jobs
from torchcaps.reproduce.runner import Folders
from torchcaps.reproduce.spec import PROFILES, load_spec
from torchcaps.reproduce.status import plan_rows, table_states

pytestmark = pytest.mark.process

ALL_PROFILES = ("sabour2017", "hinton2018", "chen2019", "choi2019", "yang2021", "gu2021")
# Random vectors: the one cell of the papers that needs neither a training nor a dataset.
RANDOM = ["reproduce", "choi2019", "table3", "--cell", "random"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_cell_is_measured_once_and_printed_beside_the_papers(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    code, said = typed(*RANDOM, "--seeds", "2")
    assert code == 0, said
    assert "choi2019 table3" in said
    assert "±" in said
    assert "2/2" in said
    assert said.count("choi2019 table3 random (seed ") == 2
    files = sorted((tmp_path / "results" / "choi2019" / "table3").iterdir())
    assert [file.name for file in files] == ["random-laptop-seed0.json", "random-laptop-seed1.json"]
    result = json.loads(files[0].read_text())
    assert result["environment"]["command"] == f"torchcaps {' '.join(RANDOM)} --seeds 2"
    before = [file.read_bytes() for file in files]
    _, again = typed(*RANDOM, "--seeds", "2")
    assert "(seed " not in again, "nothing is done twice"
    assert [file.read_bytes() for file in files] == before
    listed = {(each["paper"], each["table"]): each for each in json.loads(typed("papers", "--json")[1])}
    assert listed["choi2019", "table3"]["done"] == {"laptop": 2, "desk": 0, "paper": 0}
    seconds = listed["gu2021", "table1"]["seconds"]
    assert 60 < seconds["laptop"] < 24 * 3600 < seconds["paper"], "of another machine: nothing was trained here"


def test_a_plan_changes_nothing(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    code, said = typed(*RANDOM, "--dry-run")
    assert code == 0, said
    assert "\u2502 random \u2502 3 \u2502 0 \u2502 0 s \u2502" in said, "cell, seeds, done, time"
    assert "Total: about 0 s with one worker" in said
    assert not (tmp_path / "results").exists()


def test_the_word_that_help_prints_as_the_default_is_taken(typed: Typed) -> None:  # noqa: F811
    code, said = typed("reproduce", "choi2019", "all", "--cell", "random", "--dry-run")
    assert code == 0, said
    code, said = typed("reproduce", "choi2019", "table3", "--cell", "all", "--dry-run", "--without-training")
    assert code == 0, said
    assert "random" in said


def test_when_the_time_is_over_it_says_how_to_go_on(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    code, said = typed(*RANDOM, "--seeds", "1", "--budget", "0s")
    assert code == 0, said
    assert (
        "Time budget reached; the state is saved. 1 cell remains. Resume with: torchcaps reproduce choi2019 table3"
        in said
    )
    assert not (tmp_path / "results" / "choi2019").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gu2012"], "paper 'gu2012' is unknown: did you mean 'gu2021'?"),
        (["gu2021", "table11"], "table of gu2021 'table11' is unknown: did you mean 'table1'?"),
        (["choi2019", "table3", "--cell", "randon"], "did you mean 'random'?"),
        (["all", "table1"], "name the paper instead of 'all'"),
        (["gu2021", "--profile", "labtop"], "profile 'labtop' is unknown: did you mean 'laptop'?"),
        (["gu2021", "--budget", "soon"], "duration 'soon' is not valid"),
        (["gu2021", "--engine", "slurn", "--jobs", "2"], "engine 'slurn' is unknown: did you mean 'slurm'?"),
    ],
)
def test_a_mistake_is_one_sentence(typed: Typed, tmp_path: Path, arguments: list[str], message: str) -> None:  # noqa: F811
    code, said = typed("reproduce", *arguments)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert not any(tmp_path.iterdir()), "nothing may be half-written"


def test_every_table_has_its_time_before_anything_was_trained(tmp_path: Path) -> None:
    """In profile desk; the six earlier papers have it in all profiles."""
    for state in table_states(Folders(tmp_path / "results", tmp_path / "runs")):
        asked = PROFILES if state.paper in ALL_PROFILES else ("desk",)
        assert all(state.seconds[profile] is not None for profile in asked), f"{state.paper} {state.table}"


def test_papers_and_dry_run_estimate_the_same_time(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    states = table_states(Folders(tmp_path / "results", tmp_path / "runs"))
    for state in states:
        jobs = plan_jobs(load_spec(state.paper), "desk", tables=[state.table])
        planned = plan_rows(jobs, Folders(tmp_path / "results", tmp_path / "runs"))[1]
        total = sum(each or 0.0 for each in planned)
        assert total == pytest.approx(state.seconds["desk"]), f"{state.paper} {state.table}"
    code, said = typed("papers")
    assert code == 0
    assert "'?' is a time that 'torchcaps reproduce PAPER --dry-run' has to measure" in said
    table1 = next(state for state in states if (state.paper, state.table) == ("gu2021", "table1"))
    code, plan = typed("reproduce", "gu2021", "table1", "--dry-run", "--profile", "desk")
    expected = format_duration(table1.seconds["desk"])
    assert f"desk: 0/{table1.wanted['desk']}, {expected}" in said
    assert f"Total: about {expected} with one worker" in plan


def test_papers_lists_every_table(typed: Typed) -> None:  # noqa: F811
    code, said = typed("papers")
    assert code == 0, said
    assert all(paper in said for paper in ("chen2019", "choi2019", "gu2021", "hinton2018", "yang2021"))
    assert "\ufffd" not in said, "no control character in a cell"
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert "Accuracy against the iterations of a universal attack" in said, "nothing is cut"


def test_papers_fits_in_80_columns(run: Run) -> None:  # noqa: F811
    *listing, _ = run("papers").splitlines()  # the last line is a sentence
    assert max(map(len, listing)) <= 80


SPEC = """
paper: own2026
title: My paper
authors: Me
trainings: {}
tables:
  table1:
    title: Random vectors
    seeds: {laptop: 1, paper: 1}
    cells:
      random: {row: random, column: ratio, measure: alignment-random, published: 0.5, with: {vectors: 3}}
      other: {row: other, column: ratio, measure: alignment-random}
claims:
  high: {statement: Random vectors are hardly aligned, source: text, all: [{below: [table1/random, 0.9]}]}
"""


def test_a_spec_from_outside_the_package_is_reproduced(typed: Typed, tmp_path: Path) -> None:  # noqa: F811
    spec = tmp_path / "own.yaml"
    spec.write_text(SPEC)
    command = ["reproduce", "--spec", str(spec), "--out", "mine"]
    code, said = typed(*command, "table1", "--cell", "random")
    assert code == 0, said
    assert "own2026 table1: Random vectors" in said
    assert [path.name for path in (tmp_path / "mine" / "own2026" / "table1").iterdir()] == ["random-laptop-seed0.json"]
    code, said = typed(*command)
    assert code == 0, said
    assert len(list((tmp_path / "mine" / "own2026" / "table1").iterdir())) == 2
    assert "own2026" not in typed("papers", "--json")[1]
    code, said = typed("report", "mine", "--spec", str(spec), "--out", "site")
    assert code == 0, said
    assert "Random vectors are hardly aligned" in (tmp_path / "site" / "own2026.html").read_text()
    assert [path.name for path in (tmp_path / "site").iterdir() if "20" in path.name] == ["own2026.html"]


@pytest.mark.parametrize(
    ("old", "new", "arguments", "message"),
    [
        ("alignment-random, pub", "alignment-randon, pub", [], "did you mean 'alignment-random'?"),
        ("vectors: 3", "vector: 3", [], "setting of alignment-random 'vector' is unknown: did you mean 'vectors'?"),
        ("row: other", "training: mine", [], "table1.cells.other.row: Field required"),
        ("row: other", "training: mine, row: other", [], "training of own2026 'mine' is unknown"),
        ("paper: own2026", "paper: ../own", [], "is not a spec: paper: String should match pattern"),
        ("paper: own2026", "paper: gu2021", [], "'gu2021' is a paper of this package: choose another name"),
        ("", "", ["table1", "table2"], "with --spec, name at most one table"),
        ("title: My paper", "title: [", [], "is not readable YAML"),
    ],
)
def test_a_mistake_in_a_spec_is_one_sentence(
    typed: Typed,  # noqa: F811
    tmp_path: Path,
    old: str,
    new: str,
    arguments: list[str],
    message: str,
) -> None:
    spec = tmp_path / "own.yaml"
    spec.write_text(SPEC.replace(old, new, 1))
    code, said = typed("reproduce", "--spec", str(spec), *arguments)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "results").exists()
    assert typed("reproduce", "--spec", "missing.yaml")[0] == 2


def test_a_paper_or_a_spec_is_required(typed: Typed) -> None:  # noqa: F811
    code, said = typed("reproduce")
    assert code == 2
    assert "name a paper (see 'torchcaps papers') or give a spec file with --spec" in said
