"""Figures from the details of results."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.synthetic_results import made_spec, write_made
from torchcaps.errors import TorchcapsError
from torchcaps.html import ThemedFigure
from torchcaps.reproduce.figures import curve_of, table_figures
from torchcaps.reproduce.results import gather_results, read_result


def pictures(folder: Path, name: str = "fig1") -> list[ThemedFigure]:
    return table_figures(gather_results(made_spec(), folder)[0], name)


def drawing(picture: ThemedFigure) -> str:
    """The SVG behind a picture; matplotlib writes every text as a comment too."""
    return base64.b64decode(picture.light.partition("base64,")[2]).decode()


def test_curves_of_networks_share_an_axes(tmp_path: Path) -> None:
    for cell in "ab":
        write_made(tmp_path, f"fig1/{cell}", [None, None], details={"curve": [[0.1, 50.0], [0.2, 20.0]]})
    (picture,) = pictures(tmp_path)
    text = drawing(picture)
    assert text.count("<!-- FGSM -->") == 1, "one axes, named after what the curves have in common"
    assert "<!-- A -->" in text
    assert "<!-- B -->" in text
    assert "<!-- accuracy, % -->" in text
    assert "Lines are means over seeds" in picture.caption
    assert "Profile laptop, 2 seeds, 2,000 training images, 1 epoch" in picture.caption
    assert picture.light != picture.dark


@pytest.mark.parametrize(
    ("units", "label"),
    [({}, "pixels in [0, 1]"), ({"units": "pixels"}, "pixels in [0, 1]"), ({"units": "deviations"}, "deviations")],
)
def test_the_axis_names_the_units_of_epsilon(tmp_path: Path, units: dict[str, str], label: str) -> None:
    write_made(tmp_path, "fig1/a", [None], details={"curve": [[0.1, 50.0], [0.2, 20.0]]} | units)
    assert f"<!-- epsilon, {label} -->" in drawing(pictures(tmp_path)[0]).replace("standard ", "")


def test_values_with_warnings_are_marked(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/a", [None], details={"curve": [[0.1, 50.0], [0.2, 20.0]]}, warnings=("no gradient",))
    (picture,) = pictures(tmp_path)
    assert picture.warning == "no gradient"
    assert "A (see the warning)" in drawing(picture)


def test_single_values_are_drawn_as_a_bar_chart(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/a", [12.5, 12.7], details={"curve": [[0.1, 12.5]], "clean_accuracy": 98.0})
    (picture,) = pictures(tmp_path)
    assert picture.title == "Values"
    assert "95 % intervals over seeds" in picture.caption
    assert not pictures(tmp_path, "table1"), "a table is read, not looked at"


def test_seeds_with_other_x_values_are_separate_lines(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/a", [None], details={"curve": [[1, 50.0], [2, 20.0]]})
    write_made(tmp_path, "fig1/a", [None], first_seed=1, details={"curve": [[1, 50.0], [3, 20.0]]})
    assert len(pictures(tmp_path)) == 1


def test_histograms(tmp_path: Path) -> None:
    write_made(tmp_path, "fig1/a", [0.5], details={"histogram": {"edges": [-1, 0, 1], "counts": [3, 4]}})
    assert [picture.title for picture in pictures(tmp_path)] == ["Histograms"]


@pytest.mark.parametrize(
    ("details", "points"),
    [
        ({"curve": [[0.1, 5.0], [0.2, 2.0]], "clean_accuracy": 9.0}, [(0.0, 9.0), (0.1, 5.0), (0.2, 2.0)]),
        ({"curve": [[0.1, 5.0], [0.2, 2.0]]}, [(0.1, 5.0), (0.2, 2.0)]),
        ({"by_degree": [[20, 5.0]]}, [(20, 5.0)]),
        ({}, []),
    ],
)
def test_attack_curves_begin_with_clean_images(tmp_path: Path, details: Any, points: Any) -> None:
    (path,) = write_made(tmp_path, "fig1/a", [None], details=details)
    assert curve_of(read_result(path)) == points


@pytest.mark.parametrize(
    "details",
    [
        {"curve": "abc"},
        {"curve": [[1, 2, 3]]},
        {"curve": [[1, None], [2, 3]]},
        {"curve": [[1, 2], [2, 3]], "clean_accuracy": "high"},
        {"histogram": [1, 2]},
        {"histogram": {"edges": [0, 1], "counts": [1, 2]}},
    ],
)
def test_invalid_details_raise_a_one_sentence_error(tmp_path: Path, details: Any) -> None:
    write_made(tmp_path, "fig1/a", [None], details=details)
    with pytest.raises(TorchcapsError, match="the details of made2020 fig1/a with seed 0 cannot be drawn: "):
        pictures(tmp_path)
