"""The quick form of ``python -m tests.fuzz``, and that it detects failures."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import campaign
from tests.fuzz.campaign import COUNTS, IN_HAND, Outcome, try_input
from tests.fuzz.mutate import damage
from tests.fuzz.readers import Reader, readers
from torchcaps.environment import source_commit
from torchcaps.errors import TorchcapsError

pytestmark = pytest.mark.process

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
    out = tmp_path / "fuzz.json"
    code = fuzz.main(["--inputs", "1500", "--seed", "1", "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["wrong"] == []
    assert code == 0
    assert sum(each["read"] + each["refused"] for each in report["readers"].values()) == 1500
    assert sum(each["refused"] for each in report["readers"].values()) > 400
    assert report["environment"]["commit"] == source_commit()


def die(inputs: int, seed: int, folder: Path) -> None:
    (folder / IN_HAND).write_text("0/spec/7")
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_crashed_process_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result file is replaced in this case too, so that an old one does not report success."""
    monkeypatch.setattr(fuzz, "work", die)
    out = tmp_path / "fuzz.json"
    assert fuzz.main(["--inputs", "29", "--out", str(out)]) == 1
    report = json.loads(out.read_text())
    assert report["inputs"] == 7
    assert report["wrong"] == ["0/spec/7: the process ended with -11 (negative: a signal)"]


def test_growing_memory_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "MOST_MEGABYTES", -1)
    campaign.work(29, 0, tmp_path)
    (wrong,) = json.loads((tmp_path / COUNTS).read_text())["wrong"]
    assert re.fullmatch(r"memory grew by .* MB, more than -1", wrong)


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
