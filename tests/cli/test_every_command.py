"""Properties of all commands: JSON output, exit codes, and a complete reference page."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.test_bench import Run, run  # noqa: F401  (a fixture)
from torchcaps.cli import console
from torchcaps.cli.bench import print_result
from torchcaps.cli.main import app, main
from torchcaps.evaluate.robustness import protocols
from torchcaps.models.registry import models, setting_rows
from torchcaps.train import RunConfig

ROOT = Path(__file__).parents[2]
# These make something and list nothing: a page, a service, files.
NO_LISTING = {"data get", "data preview", "demo", "serve", "report", "export"}


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    inner = getattr(command, "commands", None)
    if inner is None or name == "bench":
        yield name, command
    for word, each in (inner or {}).items():
        yield from leaves(each, f"{name} {word}".strip())


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listing_has_json(name: str) -> None:
    has = any("--json" in parameter.opts for parameter in COMMANDS[name].params)
    assert has != (name in NO_LISTING), f"torchcaps {name}: --json, or a place in NO_LISTING"


@pytest.mark.parametrize(
    "command",
    [
        "models",
        "routings",
        "components",
        "losses",
        "optimizers",
        "schedules",
        "attacks",
        "datasets",
        "papers",
        "weights",
        "data list",
        "data verify glyphs",
        "doctor",
        "reproduce gu2021 table1 --dry-run",
    ],
)
def test_listings_print_only_json(run: Run, command: str) -> None:  # noqa: F811
    found = json.loads(run(*command.split(), "--json"))
    assert found
    rows = found["plan"] if isinstance(found, dict) else found
    assert all(isinstance(row, dict) and len(row) > 1 for row in rows)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("models", "name"),
        ("models capsnet", "name"),
        ("routings", "name"),
        ("components", "name"),
        ("losses", "name"),
        ("optimizers", "name"),
        ("schedules", "name"),
        ("attacks", "name"),
        ("datasets", "name"),
        ("weights", "name"),
        ("reproduce hinton2018 table1 --dry-run", "cell"),
    ],
)
def test_listings_fit_in_80_columns(run: Run, command: str, field: str) -> None:  # noqa: F811
    """Also in a pipe: no cell is cut, and what is an argument of another command is whole."""
    said = run(*command.split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert max(map(len, said.splitlines()[:-1])) <= 80  # the last line is a sentence
    found = json.loads(run(*command.split(), "--json"))
    for row in found["plan"] if isinstance(found, dict) else found:
        assert re.search(rf"(?<![\w-]){re.escape(row[field])}(?![\w-])", said), row[field]


def test_settings_have_the_default_of_both_sizes(run: Run) -> None:  # noqa: F811
    said = run("models", "capsnet")
    assert "filters  [default: 64; in paper size: 256]\n" in said
    assert "kernel  [default: 9]\n" in said
    assert said.startswith("capsnet: two convolutions")
    assert "--set filters=64" in said
    assert "None" not in said


@pytest.mark.parametrize("name", models.names())
def test_every_setting_of_every_model_has_a_meaning(name: str) -> None:
    for row in setting_rows(name):
        assert row.meaning, row.name
        assert not row.meaning.startswith("as in"), row.name


def test_a_wide_table_becomes_a_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a-name", "some words " * 30, "1,234", "")]
    columns = ("name", "description", "number of parameters", "needs")
    monkeypatch.setattr(console.out, "_width", 60)
    console.print_table("Things", columns, rows)
    title, name, *texts, fact = capsys.readouterr().out.splitlines()
    assert (title, name, fact) == ("Things", "a-name", "  number of parameters: 1,234")
    assert " ".join(texts).split() == rows[0][1].split()
    console.print_table("Things", columns, [("a-name", "", "1", "several words " * 9)])
    *facts, last = capsys.readouterr().out.splitlines()
    assert max(map(len, facts)) <= 60
    assert last.endswith("words")
    monkeypatch.setattr(console.out, "_width", 200)
    console.print_table("Things", columns, rows)
    assert "\u2503 number of parameters \u2503" in capsys.readouterr().out


def test_a_table_that_just_fits_keeps_its_last_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("image", "prediction", "second", "third", "typical")
    rows = [("p" * 29, "bag: 79.0%", "sneaker: 37.1%", "shirt: 15.4%", "NO")]
    for width in range(78, 92):
        monkeypatch.setattr(console.out, "_width", width)
        console.print_table("Predictions", columns, rows)
        lines = capsys.readouterr().out.splitlines()
        if "\N{BOX DRAWINGS LIGHT VERTICAL}" in lines[-2]:
            assert all(len(line) <= width for line in lines)
            assert lines[-1][-1] == "\N{BOX DRAWINGS LIGHT UP AND LEFT}", f"the right border at {width} columns"
        else:
            assert "typical: NO" in lines[-1]


def test_a_long_title_wraps_where_the_cells_are_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("model", "parameters", "training, s", "images/s", "validation, %", "test, %")
    rows = [("matrix-capsnet", "1,814,916", "197.0", "224", "100.00", "85.00")]
    monkeypatch.setattr(console.out, "_width", 80)
    console.print_table("Comparison", columns, rows, numbers=5)
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert all(word in said for word in " ".join(columns).split())
    assert all(cell in said for cell in rows[0])
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_have_no_value(run: Run, name: str) -> None:  # noqa: F811
    assert "bool" not in run(*name.split(), "--help").lower()


def test_help_names_all_robustness_tests(run: Run) -> None:  # noqa: F811
    said = " ".join(run("evaluate", "--help").split())
    assert all(f" {name}" in said for name in protocols.names())


def test_listings_agree_with_the_registries(run: Run) -> None:  # noqa: F811
    from torchcaps.attacks import attacks
    from torchcaps.data import datasets

    for command, registry in (("attacks", attacks), ("datasets", datasets)):
        assert [row["name"] for row in json.loads(run(command, "--json"))] == registry.names()


def test_components_of_every_registry_are_listed(run: Run) -> None:  # noqa: F811
    from torchcaps.layers import nonlinearities, transforms
    from torchcaps.losses import losses
    from torchcaps.train.optimizers import optimizers

    rows = json.loads(run("components", "--json"))
    for registry in (transforms, nonlinearities, losses, optimizers):
        assert [row["name"] for row in rows if row["kind"] == registry.kind] == registry.names()
    assert all(row["name"] in run("components") for row in rows)
    for kind, command in (("loss", "losses"), ("optimizer", "optimizers"), ("schedule", "schedules")):
        assert json.loads(run(command, "--json")) == [row for row in rows if row["kind"] == kind]
        assert f"see 'torchcaps {command}'" in " ".join(run("train", "--help").split()) or kind == "optimizer"


def test_a_listing_starts_with_the_name_to_type(run: Run) -> None:  # noqa: F811
    for name in ("dense", "squash", "margin", "adam", "step"):
        assert re.search(rf"^\W*{name}\b", run("components"), re.MULTILINE), name


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["train", "--help"], 0),
        ([], 2),  # shows the help
        (["no-such-command"], 2),
        (["models", "--no-such-option"], 2),
        (["predict"], 2),  # an argument is missing
        (["train", "no-such-model"], 2),
        (["predict", "no-such-run", "."], 2),
        (["models", "--plugin", "pressed.py"], 130),  # Ctrl-C
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pressed.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["torchcaps", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == code


def test_markup_in_an_error_is_printed_literally(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchcaps", "train", "caps[red]net"])
    with pytest.raises(SystemExit):
        main()
    assert "model 'caps[red]net' is unknown" in " ".join(capsys.readouterr().err.split())


def test_the_page_names_every_command_and_variable() -> None:
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert re.search(rf"`torchcaps {name}\b", page), name
    for words in re.findall(r"^\| `torchcaps ([a-z -]+)", page, re.MULTILINE):
        assert words.strip() in COMMANDS, f"torchcaps {words}is no command"
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "torchcaps").rglob("*.py"))
    for variable in set(re.findall(r"TORCHCAPS_[A-Z]+", source)):
        assert f"`{variable}`" in page, variable


def test_benchmark_results_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows, shown = [{"model": "capsnet", "seconds": 0.5}], []
    print_result(True, rows, shown.append, Path("results/step.json"))
    assert json.loads(capsys.readouterr().out) == rows
    assert shown == []
    print_result(False, rows, shown.append, Path("results/step.json"))
    assert shown == [rows]
    assert "step.json" in capsys.readouterr().out


def test_help_fits_in_80_columns_and_shows_defaults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("COLUMNS", "80")
    for group in ((), ("data",), ("bench",)):
        said = run(*group, "--help")
        assert "..." not in said.partition("Commands:")[2], f"a summary is cut:\n{said}"
    assert "[default: mnist]" in " ".join(run("train", "--help").split())


# Options of train that have no default: they name files or other settings.
NO_DEFAULT = {"images", "set", "plugin", "config", "resume", "from", "json", "help"}


def test_train_help_has_the_default_of_every_setting(run: Run) -> None:  # noqa: F811
    options = re.split(r"^  (?=-)", run("train", "--help"), flags=re.MULTILINE)[1:]
    shown = {}
    for option in options:
        name = re.match(r"(?:-h, )?--([a-z-]+)", option)
        assert name is not None
        found = re.search(r"\[default: ([^]]*)\]", " ".join(option.split()))
        assert (found is None) == (name[1] in NO_DEFAULT), option
        shown[name[1].replace("-", "_")] = found and found[1]
    numbers = ("epochs", "seed", "save_minutes", "devices", "nodes")
    for name in ("data", "size", "device", "precision", "strategy", *numbers):
        default = RunConfig.model_fields[name].default
        assert shown[name] == str(default).removesuffix(".0"), name


def test_a_warning_of_the_library_is_printed_once_and_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """Its path can be copied from a narrow terminal."""
    console.log_to_console()
    console.log_to_console()  # every command in this process
    sentence = f"the plugin /{'long-folder/' * 10}mine.py is not loaded"
    for _ in range(2):
        logging.getLogger("torchcaps.plugins").warning(sentence)
    assert capsys.readouterr().err == f"Warning: {sentence}\n"
