"""Verdicts at their limits: which side, which test, what is missing, and what a reader is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.synthetic_results import made_spec, write_made
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.intervals import student_quantile
from torchcaps.reproduce.results import gather_results
from torchcaps.reproduce.verdicts import ClaimVerdict, judge_claim


def judge(folder: Path, claim: str) -> ClaimVerdict:
    laptop = gather_results(made_spec(), folder)[0]
    assert laptop.profile == "laptop"
    return judge_claim(claim, laptop)


def test_nothing_measured_is_undecided(tmp_path: Path) -> None:
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert found.comparisons[0].test == "not measured yet"
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2])
    assert judge(tmp_path, "greater").comparisons[0].test == "not measured yet: B (MNIST)"


@pytest.mark.parametrize(
    ("b", "verdict"),
    [([97.0, 97.2, 97.1], "holds"), ([99.0, 99.2, 99.1], "does not hold"), ([98.0, 98.3, 98.1], "undecided")],
)
def test_greater_over_seeds(tmp_path: Path, b: list[float], verdict: str) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2], images=10_000)
    write_made(tmp_path, "table1/b", b, images=10_000)
    found = judge(tmp_path, "greater")
    assert found.verdict == verdict
    assert found.comparisons[0].test == "paired t interval over 3 seeds"
    assert found.comparisons[0].statement == "A <script> > B (MNIST, Table 1)"


@pytest.mark.parametrize(("shift", "verdict"), [(1e-6, "holds"), (-1e-6, "undecided")])
def test_the_interval_must_lie_wholly_on_the_right_side(tmp_path: Path, shift: float, verdict: str) -> None:
    """With values 90 + h + (-1, 0, 1), where h is half the interval, the lower end is exactly at the bound."""
    half_width = student_quantile(2) / 3**0.5
    write_made(tmp_path, "table1/a", [90 + half_width + shift + step for step in (-1, 0, 1)])
    assert judge(tmp_path, "above").verdict == verdict


@pytest.mark.parametrize(("shift", "verdict"), [(-1e-6, "does not hold"), (1e-6, "undecided")])
def test_the_interval_must_lie_wholly_on_the_other_side(tmp_path: Path, shift: float, verdict: str) -> None:
    half_width = student_quantile(2) / 3**0.5
    write_made(tmp_path, "table1/a", [90 - half_width + shift + step for step in (-1, 0, 1)])
    assert judge(tmp_path, "above").verdict == verdict


@pytest.mark.parametrize(("ahead", "verdict"), [(1.0, "holds"), (3.0, "does not hold"), (2.0, "undecided")])
def test_below_a_bound(tmp_path: Path, ahead: float, verdict: str) -> None:
    write_made(tmp_path, "table1/a", [96 + ahead, 97.1 + ahead, 97.9 + ahead])
    write_made(tmp_path, "table1/b", [96, 97, 98])
    assert judge(tmp_path, "gap").verdict == verdict


def test_pairing_takes_the_seeds_together(tmp_path: Path) -> None:
    """Far apart between seeds, always one apart within: decided with the same seeds, not with other ones."""
    write_made(tmp_path, "table1/a", [81.0, 91.1, 99.0])
    write_made(tmp_path, "table1/b", [80.0, 90.0, 98.1])
    assert judge(tmp_path, "greater").verdict == "holds"
    write_made(tmp_path, "table1/b", [75.0], first_seed=3)
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert found.comparisons[0].test == "Welch's t interval over 3 and 4 seeds"


def test_a_cell_that_counts_twice(tmp_path: Path) -> None:
    """(a - b) - (b - c) is a - 2b + c."""
    for cell, values in {"a": [90.0, 91, 92], "b": [80.0, 81, 82.5], "c": [75.0, 76, 77]}.items():
        write_made(tmp_path, f"table1/{cell}", values)
    result = judge(tmp_path, "gaps").comparisons[0]
    assert result.interval is not None
    assert result.interval.center == pytest.approx((5 + 5 + 4) / 3)
    assert result.verdict == "holds"


@pytest.mark.parametrize(
    ("values", "verdict"), [((98.0, 97.0), "holds"), ((97.0, 98.0), "does not hold"), ((98.0, 97.9), "undecided")]
)
def test_one_seed_of_shares_is_tested_over_images(tmp_path: Path, values: tuple[float, float], verdict: str) -> None:
    write_made(tmp_path, "table1/a", values[:1], images=10_000)
    write_made(tmp_path, "table1/b", values[1:], images=10_000)
    found = judge(tmp_path, "greater")
    assert found.verdict == verdict
    assert found.comparisons[0].test == "normal interval over 10,000 images: seeds were not repeated"


def test_fewer_images_decide_less(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], images=500)
    write_made(tmp_path, "table1/b", [97.0], images=500)
    assert judge(tmp_path, "greater").verdict == "undecided"


def test_one_seed_of_what_is_no_share_is_undecided(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], images=10_000)
    write_made(tmp_path, "table1/b", [9.0], unit="ratio")
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert "no share of images" in found.comparisons[0].test


def test_what_is_counted_needs_no_seeds(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [101.0], unit="count")
    write_made(tmp_path, "table1/b", [100.0], unit="count")
    assert judge(tmp_path, "greater").verdict == "holds"
    assert judge(tmp_path, "gap").verdict == "holds"
    write_made(tmp_path, "table1/b", [102.0], unit="count")
    assert judge(tmp_path, "greater").verdict == "does not hold"


def test_seeds_without_spread_fall_back_on_images(tmp_path: Path) -> None:
    """Three times the same count of right images is no proof: an interval without width would decide anything."""
    write_made(tmp_path, "table1/a", [0.0] * 3, images=4000)
    write_made(tmp_path, "table1/b", [0.025] * 3, images=4000)
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert "do not differ" in found.comparisons[0].test


@pytest.mark.parametrize(
    ("c", "verdict"), [([90.0, 90.1, 90.2], "holds"), ([99.0, 99.1, 99.2], "does not hold"), (None, "undecided")]
)
def test_a_claim_needs_all_its_comparisons(tmp_path: Path, c: list[float] | None, verdict: str) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.2, 98.1])
    write_made(tmp_path, "table1/b", [97.0, 97.1, 97.2])
    if c:
        write_made(tmp_path, "table1/c", c)
    found = judge(tmp_path, "both")
    assert found.verdict == verdict
    assert any("up to 5 %" in text for text in found.cautions) == (verdict == "does not hold")


def test_cautions_name_warnings_failures_and_earlier_settings(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0] * 3, warnings=("gradients are zero",), fingerprint="0")
    write_made(tmp_path, "table1/b", [None], error="out of memory")
    cautions = judge(tmp_path, "greater").cautions
    assert cautions == (
        "measured with earlier settings: A <script> (MNIST)",
        "A <script> (MNIST): gradients are zero",
        "B (MNIST): failed: out of memory",
    )


def test_results_of_earlier_settings_give_way(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [50.0], first_seed=7, fingerprint="0")
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2])
    evidence = gather_results(made_spec(), tmp_path)[0].cells["table1/a"]
    assert not evidence.outdated
    assert evidence.values == {0: 98.0, 1: 98.1, 2: 98.2}


def test_profiles_are_kept_apart(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], profile="paper")
    laptop, paper = gather_results(made_spec(), tmp_path)
    assert not laptop.has_results()
    assert paper.has_results(["table1/a"])
    assert not paper.has_results(["table1/b"])


def test_foreign_and_broken_files_are_refused(tmp_path: Path) -> None:
    (path,) = write_made(tmp_path, "table1/a", [98.0])
    moved = path.with_name("b-laptop-seed0.json")
    path.rename(moved)
    with pytest.raises(
        TorchcapsError, match=r"contains the result of made2020/table1/a-laptop-seed0\.json: move it there"
    ):
        gather_results(made_spec(), tmp_path)
    moved.write_text(moved.read_text().replace('"table1"', '"table9"'))
    (tmp_path / "made2020" / "table9").mkdir()
    moved.rename(tmp_path / "made2020" / "table9" / "a-laptop-seed0.json")
    with pytest.raises(
        TorchcapsError, match="contains a result that does not fit the spec: table of made2020 'table9'"
    ):
        gather_results(made_spec(), tmp_path)
    broken = tmp_path / "made2020" / "table9" / "a-laptop-seed0.json"
    whole = broken.read_text()
    for text, message in (
        ("{", "not a readable JSON file"),
        ('{"paper": 1}', "is not the result of a cell"),
        (whole.replace("98.0", "NaN"), "the number 'NaN' is not finite"),
        (whole.replace('"laptop"', '"desktop"'), "profile: Input should be 'laptop' or 'paper'"),
    ):
        broken.write_text(text)
        with pytest.raises(TorchcapsError, match=message):
            gather_results(made_spec(), tmp_path)


def test_notes_are_checked(tmp_path: Path) -> None:
    notes = tmp_path / "made2020" / "notes.yaml"
    notes.parent.mkdir()
    notes.write_text("greater: |\n  We looked\n  again.\n")
    assert judge(tmp_path, "greater").note == "We looked again."
    for text, message in (
        ("graeter: x", "did you mean 'greater'"),
        ("greater: 3", "must hold a text for each name"),
        ("- x", "must hold a text"),
        ("a: [", "not readable YAML"),
    ):
        notes.write_text(text)
        with pytest.raises(TorchcapsError, match=message):
            judge(tmp_path, "greater")
