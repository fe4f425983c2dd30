"""Mutations that keep a file's structure, and what readers do with them."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
import yaml

from tests.fuzz.campaign import Outcome, try_input
from tests.fuzz.readers import readers
from tests.fuzz.structure import change_structure, has_structure

FEW = 25  # mutations of each reader's file: a sample, `python -m tests.fuzz` has the rest

REMADE = {"kept tensors"}  # a cache: what is damaged is made again


def test_the_same_seed_changes_the_same_field() -> None:
    content = json.dumps({"a": 1, "b": [1, 2], "c": {"d": "e"}}).encode()
    made = [change_structure(content, "x.json", seed) for seed in ("1", "1", "3")]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.json", b'{"a": 1, "b": {"c": [1]}}'), ("x.yaml", b"a: 1\nb: {c: [1]}\n"), ("x.csv", b"a,b\n1,2\n")],
)
def test_most_changed_files_still_parse(name: str, content: bytes) -> None:
    parse = {".json": json.loads, ".yaml": yaml.safe_load, ".csv": lambda text: list(csv.reader(io.StringIO(text)))}
    parsed = 0
    for seed in range(200):
        try:
            parse[Path(name).suffix](change_structure(content, name, str(seed)).decode())
            parsed += 1
        except (ValueError, yaml.YAMLError, OverflowError, csv.Error):
            continue
    assert parsed > 140


def test_the_mutations_have_every_shape() -> None:
    texts = [change_structure(b'{"a": 1, "b": {"c": 2}}', "x.json", str(seed)).decode() for seed in range(600)]
    for wanted in ("NaN", "Infinity", "9" * 400, "null", "true", "[]", '"x"', "1e999"):
        assert any(wanted in text for text in texts), wanted
    loaded = [json.loads(text, parse_int=float) for text in texts if "[[[[" not in text]
    assert any(isinstance(each, dict) and "a" not in each for each in loaded), "a key dropped or renamed"
    assert any(text.count('"a":') == 2 for text in texts), "a key twice"
    assert any(isinstance(each, dict) and each.get("a") == -1 for each in loaded)
    assert any(isinstance(each, dict) and math.isinf(each.get("a") or 0) for each in loaded if _is_number(each))


def _is_number(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("a"), float)


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    wrong = list[str]()
    for name, reader in readers(tmp_path).items():
        if has_structure(reader.file):
            outcome = Outcome()
            for number in range(FEW):
                seed = f"structure/{name}/{number}"
                content = change_structure(reader.good, reader.file, seed)
                try_input(reader, tmp_path / reader.file, content, outcome, seed)
            (tmp_path / reader.file).write_bytes(reader.good)
            wrong += outcome.wrong
            assert outcome.refused or name in REMADE, f"{name}: nothing was refused"
    assert wrong == []
