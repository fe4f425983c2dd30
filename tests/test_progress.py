"""Progress without a terminal: a line now and then."""

from __future__ import annotations

import time

import pytest

from torchcaps import progress
from torchcaps.progress import progress_bar
from torchcaps.train import callbacks
from torchcaps.train.callbacks import Display


def test_a_log_file_shows_that_work_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    with progress_bar("reading", 2000) as advance, progress_bar("exporting", None):
        advance(1500)
        time.sleep(0.2)
    said = capsys.readouterr().err
    assert "reading: 1,500 of 2,000, after 0 s" in said
    assert "exporting: after 0 s" in said
    time.sleep(0.1)
    assert capsys.readouterr().err == "", "nothing after the end"


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_a_training_prints_its_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LINE_SECONDS", 0.0)
    title = "capsnet on " + 10 * "a-long-name-"
    with Display(title, 10, 500) as display:
        display.step(0.25, 0.5, 1234)
    expected = f"{title}: step 11 of 500, loss 0.2500, accuracy 50.00%, 1,234 images/s\n"
    assert capsys.readouterr().err == expected, "on one line"
