"""Names of files, classes and runs are shown as they are: no formula, no control character, no spreadsheet formula."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from tests.fuzz.good import RESULT
from torchcaps.analysis.explain import write_page
from torchcaps.analysis.figures import image_sheet, map_sheet
from torchcaps.analysis.style import figure_style, figure_text, save_figure
from torchcaps.cli import console
from torchcaps.cli.main import main
from torchcaps.compare import figures
from torchcaps.compare import report as compare_report
from torchcaps.compare.job import ComparisonResults
from torchcaps.data.base import TensorImages
from torchcaps.data.io.pictures import list_folder
from torchcaps.data.preview import contact_sheet
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.figures import affine_chart, attack_curves
from torchcaps.files import printable
from torchcaps.models import create_model
from torchcaps.prediction import Prediction, Predictions, draw_least_confident, write_csv
from torchcaps.progress import progress_bar
from torchcaps.reproduce.figures import name_axes
from torchcaps.reproduce.results import CellResult
from torchcaps.train import new_run, resolve

MATH = "$\\frac{$"  # no formula that matplotlib can set
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202e"
NAMES = (MATH, f"a{ESCAPES}", "cost $5_$", "new\nline")


def test_printable() -> None:
    assert printable("plain é 日本 👩‍🔬 a\u00a0b") == "plain é 日本 👩‍🔬 a\u00a0b"
    assert printable("a\x1b[2J\r\n\t\x00\x9b\u202e\udc80") == "a�[2J" + "�" * 7


def attacked(labels: tuple[str, ...]) -> dict[str, list[dict[str, object]]]:
    row = {"attack": "fgsm", "epsilon": 0.1, "accuracy": 0.4}
    return {label: [{"attacks": [row], "norm": "linf", "clean_accuracy": 1.0, "sanity": []}] for label in labels}


def changed(labels: tuple[str, ...]) -> dict[str, list[dict[str, object]]]:
    curve = {"strength": [-20.0, 20.0], "accuracy": [0.5, 0.6]}
    return {label: [{"curves": {"rotation": curve}}] for label in labels}


def titled(title: str) -> Figure:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], label="line")
    name_axes(axes, CellResult.model_validate(RESULT), title)
    return figure


PICTURES = torch.rand(4, 4, 1, 8, 8)
DRAWN: dict[str, Callable[[], Figure]] = {
    "rows and columns": lambda: image_sheet(PICTURES, NAMES, NAMES, MATH),
    "maps": lambda: map_sheet(PICTURES[0], NAMES, NAMES, [[np.ones((2, 2))] * 4] * 4, [(0, 8, 8, 0)] * 4),
    "attacks": lambda: attack_curves(attacked(NAMES)),
    "affine": lambda: affine_chart(changed(NAMES)),
    "paper": lambda: titled(MATH),
}


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("kind", DRAWN)
def test_figures_show_names_as_they_are(kind: str, tmp_path: Path) -> None:
    with figure_style():
        figure = DRAWN[kind]()
    for suffix in ("png", "svg"):
        save_figure(figure, tmp_path / f"figure.{suffix}")
    ElementTree.parse(tmp_path / "figure.svg")  # control characters would make it unreadable


@pytest.mark.parametrize("name", ["$5", "5$", "$a$", "\\$", "a\\$b$c"])
def test_figure_text_is_drawn_literally(name: str) -> None:
    text = Figure().text(0, 0, figure_text(name))
    assert text._preprocess_math(text.get_text()) == (name, False)


def test_confusions_and_learning_curves(tmp_path: Path) -> None:
    confusion = np.ones((4, 4), dtype=int).tolist()
    result = {"confusion": confusion, "test_images": 16, "seed": 0}
    assert figures.confusions({MATH: result, "b": result}, NAMES).light.startswith("data:image/png")
    run = new_run(resolve(model="convnet-avg", data="glyphs", device="cpu"), tmp_path / "run")
    run.metrics_file.write_text(
        "step,epoch,split,loss,accuracy,learning_rate,images_per_second,seconds\n1,1,train,1,0.5,1,1,1\n"
    )
    comparison = ComparisonResults(tmp_path, {MATH: [run]}, {})
    assert figures.learning_curves(comparison).light.startswith("data:image/png")


@pytest.mark.parametrize("count", [1, 2])  # fewer test images than a sheet has columns
def test_reconstructions_are_named(count: int) -> None:
    model = create_model("capsnet", image_size=28, channels=1, classes=4, filters=8, types=2, hidden=(16, 16)).eval()
    model.class_names = (MATH,) * 4
    images = TensorImages(torch.zeros(count, 1, 28, 28, dtype=torch.uint8), torch.zeros(count), model.class_names)
    assert figures.reconstructions(MATH, model, images).light.startswith("data:image/png")


def test_least_confident_images_and_contact_sheets(tmp_path: Path) -> None:
    paths = [tmp_path / MATH / f"{number}{MATH}.png" for number in range(2)]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        Image.new("L", (28, 28)).save(path)
    model = create_model("convnet-avg", image_size=28, channels=1, classes=2, filters=4)
    answers = tuple(Prediction(path, (0.5, 0.5)) for path in paths)
    assert draw_least_confident(model, Predictions((MATH, "b"), answers, {}), tmp_path / "sheet.png") == 2
    images = TensorImages(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4), NAMES)
    contact_sheet(images, "title\nof two lines \udc80")


def test_the_console_shows_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{ESCAPES}[/b][red]\udc80"
    console.print_table(name, (name, "b"), [(name, name)])
    console.print_table("widths", ("a",), [("a\x1b\x1b\x1bred",)])
    console.warn(name)
    console.out.print(name)
    console.err.print(name)
    console.log_to_console()
    # pytest would keep the record in its report, and pytest-xdist cannot send a lone surrogate.
    monkeypatch.setattr(logging.getLogger("torchcaps"), "propagate", False)
    logging.getLogger("torchcaps").warning("skipped: %s", name)
    monkeypatch.setattr(console.err, "_force_terminal", False)
    with progress_bar(name, 1) as advance:
        advance(1)
    monkeypatch.setattr(sys, "argv", ["torchcaps", "train", name])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert "a���red" in said.out  # nothing is cut off
    for text in (said.out, said.err):
        assert not set(text) & set("\x1b\x07\x9b\x7f\u202e\r\x08"), repr(text)
        assert "[/b][red]" in text
    console.print_json({"name": name})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": name}
    assert printed.isascii()


def test_csv_cells_are_not_formulas(tmp_path: Path) -> None:
    names = ("=1+1", "+1", "-x", "@SUM(A1)", "\tx", "\rx", "plain", "-3.5")
    answers = tuple(Prediction(Path(name), (1.0,) * 8) for name in names)
    broken = {Path("=broken.png"): "=broken.png cannot be read"}
    write_csv(Predictions(names, answers, broken), tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as stream:
        head, *rows = csv.reader(stream)
    named = head[-len(names) :]
    assert named == ["'=1+1", "'+1", "'-x", "'@SUM(A1)", "�x", "�x", "plain", "-3.5"]
    assert [row[0] for row in rows] == [*named, "'=broken.png"]
    assert rows[-1][head.index("problem")] == "'=broken.png cannot be read"
    assert rows[0][2] == "1.000000"


BAD = "<script>alert(1)</script>"
ENVIRONMENT = {
    "command": BAD,
    "processor": BAD,
    "threads": BAD,
    "versions": {"torch": BAD},
    "commit": BAD,
}


def test_reports_escape_result_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(resolve(model="convnet-avg", data="glyphs", device="cpu"), tmp_path / "run")
    result = {
        "environment": ENVIRONMENT,
        "parameters": 1,
        "training_seconds": 1.0,
        "images_per_second": 1.0,
        "validation_accuracy": 0.5,
        "test_accuracy": 0.5,
        "reached": None,
        "stop_at_accuracy": None,
    }
    monkeypatch.setattr(compare_report, "_figures", lambda comparison: [])
    monkeypatch.setattr(compare_report, "table_cells", lambda chosen, results: [BAD])
    page = compare_report.write_report(ComparisonResults(tmp_path, {BAD: [run]}, {BAD: [result]}))
    assert "<script" not in page.read_text(encoding="utf-8")
    report = {"title": BAD, "about": BAD, "explanations": {}, "skipped": {BAD: BAD}, "environment": ENVIRONMENT}
    prediction = {"image": BAD, "prediction": BAD, "true_label": BAD, "correct": False, "probabilities": {BAD: 0.5}}
    page = write_page(tmp_path, report | {"predictions": [prediction]}, torch.rand(1, 1, 8, 8), {})
    assert "<script" not in page.read_text(encoding="utf-8")


def test_a_class_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    """Such a name can be written neither to the config nor on a figure."""
    folder = tmp_path / "pets" / "cat\udc80"
    try:
        folder.mkdir(parents=True)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such name")
    Image.new("L", (9, 9)).save(folder / "a.png")
    with pytest.raises(TorchcapsError, match=r"^the folder .*cat�.* has a name that is not valid UTF-8"):
        list_folder(tmp_path / "pets")
