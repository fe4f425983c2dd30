"""Settings are plain values: no tags, no aliases, nothing huge."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torchcaps.errors import TorchcapsError
from torchcaps.files import MOST_BYTES, parse_yaml
from torchcaps.reproduce.spec import parse_spec
from torchcaps.train import open_run, read_settings
from torchcaps.train.config import validate_config

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model: !!python/object/apply:os.system ['touch ran']",
            "the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
        ("model: !!python/name:os.system", "the tag"),
        ("model: !!bool maybe", "the tag"),
        ("model: !!timestamp x", "the tag"),
        ("model: !own {a: 1}", "the tag '!own'"),
        (BOMB, r"the alias '\*a' is not allowed"),
        ("a: &a {<<: *a}", "the alias"),
        ("model: " + "9" * 5000, "not readable"),
        ("model: 2020-13-45", "not readable"),
        ("a: " + "[" * 20_000, "not readable"),
        ("model: x\n" + "# " + "x" * MOST_BYTES, "holds more than"),
        ("\0", "not readable"),
        ("? [a, b]\n: c", "not readable|should hold lines"),
    ],
    ids=range(13),
)
def test_what_is_not_plain_is_refused(tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    began = time.monotonic()
    with pytest.raises(TorchcapsError, match=message) as caught:
        open_run(tmp_path).config()
    assert time.monotonic() - began < 5
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "ran").exists()


def test_plain_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: capsnet\noptions: {filters: 8, hidden: [1, 2.5, word, null, true]}\n")
    assert read_settings(tmp_path / "a.yaml")["options"]["hidden"] == [1, 2.5, "word", None, True]
    assert parse_yaml("'quoted'", "x") == "quoted"


def test_a_value_that_is_long_makes_no_long_sentence() -> None:
    with pytest.raises(TorchcapsError) as caught:
        validate_config({"model": ["x" * 10_000] * 100})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", ["1" + ":59" * 400 + ".5", "0001-01-01T00:00:00+23:59"])
def test_a_spec_with_a_number_or_date_out_of_range(value: str) -> None:
    with pytest.raises(TorchcapsError, match="the text is not"):
        parse_spec(f"paper: {value}\n")
