"""A small share of the damaged files; ``python -m tests.fuzz`` tries as many as you like."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.campaign import Outcome, run, try_input
from tests.fuzz.mutate import damage
from tests.fuzz.readers import Reader, readers
from torchcaps.errors import TorchcapsError

ANSWERS = {"verified gz", "tar", "zip"}  # their checksum is made up, so they refuse every file


def test_good_files_are_read(tmp_path: Path) -> None:
    for name, reader in readers(tmp_path).items():
        path = tmp_path / reader.file
        path.write_bytes(reader.good)
        if name in ANSWERS:
            with pytest.raises(TorchcapsError, match=r"inside\.bin"):
                reader.read(path)
        else:
            reader.read(path)


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    found, cost = run(700, seed=1, folder=tmp_path)
    assert [line for each in found.values() for line in each.wrong] == []
    assert sum(each.read + each.refused for each in found.values()) == 700
    assert sum(each.refused for each in found.values()) > 200
    assert cost["megabytes_grown"] < 500


def test_a_reader_that_breaks_its_promise_is_found(tmp_path: Path) -> None:
    outcome = Outcome()
    careless = Reader("x.json", b"{}", lambda path: {}["missing"])
    try_input(careless, tmp_path / "x.json", b"{}", outcome, "seed")
    assert outcome.wrong == ["seed: KeyError: 'missing'"]


@pytest.mark.parametrize(("clock", "busy"), [("SECONDS", True), ("PATIENCE", False)], ids=["computes", "waits"])
def test_a_reader_that_hangs_is_found(clock: str, busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(path: Path) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if not busy:
                time.sleep(0.5)

    monkeypatch.setattr(campaign, clock, 0.2)
    outcome = Outcome()
    try_input(Reader("x.json", b"{}", hang), tmp_path / "x.json", b"{}", outcome, "seed")
    assert [line.split(":")[1] for line in outcome.wrong] == [" HungError"]


def test_the_same_seed_makes_the_same_damage() -> None:
    content, others = bytes(range(200)), [b"other"]
    made = [damage(content, others, seed, text=True) for seed in ("a", "a", "b")]
    assert made[0] == made[1] != made[2]
