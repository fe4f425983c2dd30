"""Verdicts at the edge of a decision, the test used, what is missing, and cautions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.helpers.synthetic_results import TEXT, made_spec, write_made
from torchcaps.analysis.intervals import student_quantile
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.claims_text import cell_weights
from torchcaps.reproduce.results import gather_results
from torchcaps.reproduce.spec import ClaimComparison, parse_spec
from torchcaps.reproduce.verdicts import ClaimVerdict, examine_comparison, judge_claim


def judge(folder: Path, claim: str) -> ClaimVerdict:
    laptop = gather_results(made_spec(), folder)[0]
    assert laptop.profile == "laptop"
    return judge_claim(claim, laptop)


def test_nothing_measured_is_not_testable(tmp_path: Path) -> None:
    found = judge(tmp_path, "greater")
    assert found.verdict == "not testable yet"
    assert not found.measured
    assert found.gaps == ("A <script> (MNIST): not measured yet", "B (MNIST): not measured yet")
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2])
    assert judge(tmp_path, "greater").gaps == ("B (MNIST): not measured yet",)


@pytest.mark.parametrize(
    ("b", "verdict", "p"),
    [
        ([97.0, 97.2, 97.1], "holds", "0.0033"),
        ([99.0, 99.2, 99.1], "does not hold", "0.0033"),
        ([98.0, 98.3, 98.1], "undecided", "0.74"),
    ],
)
def test_greater_over_seeds(tmp_path: Path, b: list[float], verdict: str, p: str) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2], images=10_000)
    write_made(tmp_path, "table1/b", b, images=10_000)
    found = judge(tmp_path, "greater")
    assert found.verdict == verdict
    assert found.comparisons[0].test == f"paired t interval over 3 seeds, p = {p}"
    assert found.comparisons[0].statement == "A <script> > B (MNIST, Table 1)"


@pytest.mark.parametrize(("b", "verdict"), [([3.9, 4.1, 4.0], "holds"), ([5.9, 6.1, 6.0], "does not hold")])
def test_a_term_may_have_a_factor(tmp_path: Path, b: list[float], verdict: str) -> None:
    claim = ClaimComparison(greater=("0.5 * table1/a", "table1/b"))
    assert claim.terms() == [["table1/a"], ["table1/b"]]
    write_made(tmp_path, "table1/a", [9.8, 10.2, 10.0], images=10_000)
    write_made(tmp_path, "table1/b", b, images=10_000)
    paper = gather_results(made_spec(), tmp_path)[0]
    found = examine_comparison(claim, paper)
    assert cell_weights(claim) == {"table1/a": 0.5, "table1/b": -1.0}
    assert found.statement == "0.5 times A <script> > B (MNIST, Table 1)"
    assert found.interval is not None
    assert found.interval.center == pytest.approx(5 - b[2])
    assert (found.margin > 0) == (verdict == "holds")


@pytest.mark.parametrize("text", ["half * table1/a", "0.5 *", "-1 * table1/a", "inf * table1/a"])
def test_a_factor_is_a_positive_number(text: str) -> None:
    with pytest.raises(ValidationError, match="a term is table/cell, or a positive number, '\\*' and table/cell"):
        ClaimComparison(greater=(text, "table1/b"))


@pytest.mark.parametrize(("shift", "verdict"), [(1e-6, "holds"), (-1e-6, "undecided")])
def test_a_claim_holds_only_if_the_whole_interval_does(tmp_path: Path, shift: float, verdict: str) -> None:
    """With values 90 + h + (-1, 0, 1), where h is half the interval, the lower end is exactly at the bound."""
    half_width = student_quantile(2) / 3**0.5
    write_made(tmp_path, "table1/a", [90 + half_width + shift + step for step in (-1, 0, 1)])
    assert judge(tmp_path, "above").verdict == verdict


@pytest.mark.parametrize(("shift", "verdict"), [(-1e-6, "does not hold"), (1e-6, "undecided")])
def test_a_claim_fails_only_if_the_whole_interval_does(tmp_path: Path, shift: float, verdict: str) -> None:
    half_width = student_quantile(2) / 3**0.5
    write_made(tmp_path, "table1/a", [90 - half_width + shift + step for step in (-1, 0, 1)])
    assert judge(tmp_path, "above").verdict == verdict


@pytest.mark.parametrize(("ahead", "verdict"), [(1.0, "holds"), (3.0, "does not hold"), (2.0, "undecided")])
def test_below_a_bound(tmp_path: Path, ahead: float, verdict: str) -> None:
    write_made(tmp_path, "table1/a", [96 + ahead, 97.1 + ahead, 97.9 + ahead])
    write_made(tmp_path, "table1/b", [96, 97, 98])
    assert judge(tmp_path, "gap").verdict == verdict


def test_results_of_the_same_seeds_are_paired(tmp_path: Path) -> None:
    """Far apart between seeds, always one apart within: decided with the same seeds, not with other ones."""
    write_made(tmp_path, "table1/a", [81.0, 91.1, 99.0])
    write_made(tmp_path, "table1/b", [80.0, 90.0, 98.1])
    assert judge(tmp_path, "greater").verdict == "holds"
    write_made(tmp_path, "table1/b", [75.0], first_seed=3)
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert found.comparisons[0].test == "Welch's t interval over 3 and 4 seeds, p = 0.56"


def test_a_cell_that_counts_twice(tmp_path: Path) -> None:
    """(a - b) - (b - c) is a - 2b + c."""
    for cell, values in {"a": [90.0, 91, 92], "b": [80.0, 81, 82.5], "c": [75.0, 76, 77]}.items():
        write_made(tmp_path, f"table1/{cell}", values)
    result = judge(tmp_path, "gaps").comparisons[0]
    assert result.interval is not None
    assert result.interval.center == pytest.approx((5 + 5 + 4) / 3)
    assert result.verdict == "holds"


@pytest.mark.parametrize("images", [500, 10_000, 1_000_000])
@pytest.mark.parametrize(("seeds", "words"), [(1, "one seed"), (2, "two seeds")])
def test_fewer_than_three_seeds_never_decide(tmp_path: Path, images: int, seeds: int, words: str) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1][:seeds], images=images)
    write_made(tmp_path, "table1/b", [50.0, 50.3, 50.1], images=images)
    found = judge(tmp_path, "greater")
    assert (found.verdict, found.few_seeds) == ("undecided", words)
    assert found.comparisons[0].test == f"normal interval over {images:,} images: {words}"
    assert found.comparisons[0].p is None


def test_one_seed_of_what_is_no_share_is_undecided(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], images=10_000)
    write_made(tmp_path, "table1/b", [9.0], unit="ratio")
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert found.few_seeds == "one seed"
    assert found.comparisons[0].test == "fewer than 3 seeds"


def test_one_count_is_enough(tmp_path: Path) -> None:
    spec = parse_spec(TEXT.replace("test-accuracy", "parameters"))
    for a, verdict in ((101.0, "holds"), (99.0, "does not hold"), (100.0, "undecided")):
        write_made(tmp_path, "table1/a", [a], unit="count", spec=spec)
        write_made(tmp_path, "table1/b", [100.0], unit="count", spec=spec)
        laptop = gather_results(spec, tmp_path)[0]
        assert judge_claim("greater", laptop).verdict == verdict
        assert judge_claim("gap", laptop).verdict == "holds"


def test_seeds_without_spread_fall_back_on_images(tmp_path: Path) -> None:
    """Three times the same count of right images is no proof: an interval without width would decide anything."""
    write_made(tmp_path, "table1/a", [0.0] * 3, images=4000)
    write_made(tmp_path, "table1/b", [0.025] * 3, images=4000)
    found = judge(tmp_path, "greater")
    assert found.verdict == "undecided"
    assert "do not differ" in found.comparisons[0].test


@pytest.mark.parametrize(
    ("c", "verdict"), [([90.0, 90.1, 90.2], "holds"), ([99.0, 99.1, 99.2], "does not hold"), (None, "not testable yet")]
)
def test_a_claim_needs_all_its_comparisons(tmp_path: Path, c: list[float] | None, verdict: str) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.2, 98.1])
    write_made(tmp_path, "table1/b", [97.0, 97.1, 97.2])
    if c:
        write_made(tmp_path, "table1/c", c)
    found = judge(tmp_path, "both")
    assert found.verdict == verdict
    assert found.comparisons[0].test.endswith("Holm-adjusted for 2 comparisons")


def test_a_reversed_comparison_refutes_a_claim_whose_other_one_is_not_testable(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [90.0, 90.2, 90.1])
    write_made(tmp_path, "table1/b", [97.0, 97.1, 97.2])
    found = judge(tmp_path, "both")
    assert found.verdict == "does not hold"
    assert [each.verdict for each in found.comparisons] == ["does not hold", "not testable yet"]
    assert found.gaps == ()


@pytest.mark.parametrize(("claim", "verdict"), [("greater", "holds"), ("both", "undecided")])
def test_several_comparisons_are_adjusted_by_holm(tmp_path: Path, claim: str, verdict: str) -> None:
    """Each of two comparisons has p = 0.0426: decided alone, not decided together."""
    half_width = 1.09 * student_quantile(2) / 3**0.5  # p is a little below 5 %
    write_made(tmp_path, "table1/a", [90 + half_width + step for step in (-1, 0, 1)])
    write_made(tmp_path, "table1/b", [90.0] * 3)
    write_made(tmp_path, "table1/c", [90 - half_width + step for step in (-1, 0, 1)])
    found = judge(tmp_path, claim)
    assert found.verdict == verdict
    for result in found.comparisons:
        assert result.p == pytest.approx(0.0426 * len(found.comparisons), abs=2e-4)


def test_a_reversed_comparison_is_adjusted_too(tmp_path: Path) -> None:
    """The other comparison is not measured yet, but belongs to the claim."""
    half_width = 1.09 * student_quantile(2) / 3**0.5
    write_made(tmp_path, "table1/a", [90 - half_width + step for step in (-1, 0, 1)])
    write_made(tmp_path, "table1/b", [90.0] * 3)
    assert judge(tmp_path, "greater").verdict == "does not hold"
    assert judge(tmp_path, "both").verdict == "not testable yet"


def test_cautions_name_warnings_and_failures(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0] * 3, warnings=("gradients are zero",))
    write_made(tmp_path, "table1/b", [None], error="out of memory")
    cautions = judge(tmp_path, "greater").cautions
    assert cautions == (
        "A <script> (MNIST): gradients are zero",
        "B (MNIST): failed: out of memory",
    )


def test_results_of_earlier_settings_never_decide(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2], fingerprint="0")
    write_made(tmp_path, "table1/b", [90.0, 90.1, 90.2])
    found = judge(tmp_path, "greater")
    assert found.verdict == "not testable yet"
    assert found.gaps == ("A <script> (MNIST): measured with earlier settings",)


def test_current_results_replace_outdated_ones(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [50.0], first_seed=7, fingerprint="0")
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2])
    evidence = gather_results(made_spec(), tmp_path)[0].cells["table1/a"]
    assert not evidence.outdated
    assert evidence.values == {0: 98.0, 1: 98.1, 2: 98.2}


def test_profiles_are_kept_apart(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], profile="paper")
    laptop, _, paper = gather_results(made_spec(), tmp_path)
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
        (whole.replace('"laptop"', '"desktop"'), "profile: Input should be 'laptop', 'desk' or 'paper'"),
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
