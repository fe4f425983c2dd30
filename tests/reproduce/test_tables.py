"""Tables from result files: our value and the published one, intervals, captions and footnotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.synthetic_results import made_spec, write_made
from tests.reference.intervals import TABLE, mean_and_variance
from torchcaps.reproduce.results import gather_results
from torchcaps.reproduce.tables import PrintedTable, TableCell, build_table, table_to_html, table_to_markdown


def built(folder: Path, name: str = "table1", profile: int = 0) -> PrintedTable:
    found = build_table(gather_results(made_spec(), folder)[profile], name)
    assert found is not None
    return found


def test_mean_interval_and_the_papers_value(tmp_path: Path) -> None:
    values = [98.0, 98.1, 98.5]
    write_made(tmp_path, "table1/a", values)
    mean, variance = mean_and_variance(values)
    half_width = TABLE[2] * (variance / 3) ** 0.5
    table = built(tmp_path)
    assert table.rows["A <script>"][0] == TableCell(f"{mean:.2f} ± {half_width:.2f}", "99.2")
    assert f"| {mean:.2f} ± {half_width:.2f} (paper 99.2) |" in table_to_markdown(table)


def test_unmeasured_cells_are_dashes_and_cited_ones_marked(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0])
    rows = built(tmp_path).rows
    assert rows["B"][0] == TableCell("—", "98.5")
    assert rows["C"][0] == TableCell("—")
    assert rows["Cited"][0] == TableCell("cited", "93.1")
    assert rows["A <script>"] == [TableCell("98.00", "99.2"), None]


def test_caption_names_profile_seeds_budget_and_selection(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1])
    write_made(tmp_path, "table1/b", [97.0])
    caption = built(tmp_path).caption
    for words in (
        "Profile laptop, 1 to 2 seeds, 2,000 training images, 1 epoch, 1 min 30 s of training a run.",
        "chosen on validation images",
        "95 % interval",
    ):
        assert words in caption
    assert built(tmp_path / "nothing").caption.startswith("Not measured yet.")


def test_how_a_value_is_computed_comes_from_the_measure(tmp_path: Path) -> None:
    from torchcaps.reproduce.measures import measures

    how = built(tmp_path).how
    assert how[0] == f"test-accuracy (%): {measures.get('test-accuracy').how}."
    assert len(how) == 2, "each measure is told once"
    assert built(tmp_path).columns == ["MNIST,\N{NO-BREAK SPACE}%", "affNIST,\N{NO-BREAK SPACE}%"]


def test_footnotes(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1], warnings=("careful",))
    write_made(tmp_path, "table1/b", [97.0, 97.1], warnings=("careful",), fingerprint="0")
    write_made(tmp_path, "table1/c", [None], error="out of memory")
    table = built(tmp_path)
    assert table.footnotes == [
        "careful",
        "Measured with earlier settings of this cell.",
        "Failed with seed 0: out of memory",
        "Not part of profile laptop.",
    ]
    notes = {row: entries[0].notes for row, entries in table.rows.items() if entries[0]}
    assert notes == {"A <script>": (1,), "B": (2, 1), "C": (3,), "Cited": ()}
    assert "<sup>2,1</sup>" in table_to_markdown(table)
    assert "1. careful" in table_to_markdown(table)
    assert "\n\n<!-- measures -->\n\n- test-accuracy" in table_to_markdown(table), "not footnote 3"


def test_a_different_number_of_seeds_is_noted(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0, 98.1, 98.2])
    write_made(tmp_path, "table1/b", [98.0, 98.1, 98.2])
    write_made(tmp_path, "table1/c", [98.0])
    table = built(tmp_path)
    assert table.footnotes[0] == "1 seed."
    assert table.rows["C"][0] == TableCell("98.00", "", (1,))


def test_profiles_have_their_own_tables(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/other", [94.0], profile="paper")
    write_made(tmp_path, "table1/b", [98.0], profile="paper")  # makes its network competent
    assert built(tmp_path, profile=2).rows["B"][1] == TableCell("94.00", "94.11")
    assert "Profile paper" in built(tmp_path, profile=2).caption


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [("count", 13475648, "13,475,648"), ("ratio", 0.8251, "0.825"), ("seconds", 0.012345, "0.01235")],
)
def test_digits_follow_the_unit(tmp_path: Path, unit: str, value: float, shown: str) -> None:
    write_made(tmp_path, "table1/c", [value], unit=unit)
    assert built(tmp_path).rows["C"][0] == TableCell(shown)


def test_wide_tables_are_transposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_made(tmp_path, "fig1/a", [12.5])
    write_made(tmp_path, "fig1/c", [13.5])
    assert built(tmp_path, "fig1").columns == ["FGSM,\N{NO-BREAK SPACE}%", "BIM,\N{NO-BREAK SPACE}%"]
    monkeypatch.setattr("torchcaps.reproduce.tables.MAX_COLUMNS", 1)
    table = built(tmp_path, "fig1")
    assert table.columns == ["A"]
    assert table.rows == {
        "FGSM,\N{NO-BREAK SPACE}%": [TableCell("12.50")],
        "BIM,\N{NO-BREAK SPACE}%": [TableCell("13.50")],
    }


def test_a_figure_without_numbers_has_no_table(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/a", [None], details={"curve": [[0.1, 50.0]]})
    assert build_table(gather_results(made_spec(), tmp_path)[0], "fig1") is None
    write_made(tmp_path, "fig1/b", [12.5])
    assert list(built(tmp_path, "fig1").rows) == ["B"]


def test_names_are_escaped(tmp_path: Path) -> None:
    write_made(tmp_path, "table1/a", [98.0], warnings=("a|b <c> *d*",))
    table = built(tmp_path)
    page, text = table_to_html(table), table_to_markdown(table)
    assert "<script>" not in page + text
    assert "A &lt;script&gt;" in page
    assert "a|b &lt;c&gt; *d*" in page
    assert r"a\|b &lt;c&gt; \*d\*" in text


@pytest.mark.parametrize(
    ("columns", "second", "beside"),
    [
        (2, TableCell("1.50", "1.2"), True),
        (2, TableCell("1.50"), False),
        (2, None, False),
        (4, TableCell("1.50", "1.2"), False),
    ],
)
def test_the_papers_value_stands_beside_ours_where_every_column_has_one(
    columns: int, second: TableCell | None, beside: bool
) -> None:
    row = [TableCell("1.50", "1.2")] * (columns - 1) + [second]
    page = table_to_html(PrintedTable([f"column {k}" for k in range(columns)], {"A": row}, "", []))
    assert ("narrow" in page) == beside
