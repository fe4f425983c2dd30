"""torchcaps weights: the table, JSON and model cards."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from torchcaps.cli.main import main
from torchcaps.pretrained import list_pretrained
from torchcaps.pretrained.loading import ROOT, file_hash
from torchcaps.train import RunFolder, read_settings, resolve

CARDS = list_pretrained()


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["torchcaps", "weights", *arguments])
    main()


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, *arguments)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_the_table_and_its_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(monkeypatch, capsys, "--json"))
    assert [row["name"] for row in rows] == [card.name for card in CARDS]
    for row, card in zip(rows, CARDS, strict=True):
        weights = ROOT / card.name / "weights.safetensors"
        assert row["sha256"] == card.sha256 == file_hash(weights)
        assert row["bytes"] == weights.stat().st_size
        assert row["test_accuracy"] == card.test_accuracy
        assert row["preprocessing"].startswith("pixels in [0, 1]")
        assert len(row["classes"]) == 10
    table = printed(monkeypatch, capsys)
    assert all(card.name in table and f"{card.test_accuracy:.2%}" in table for card in CARDS)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_the_card_of_one(
    card: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = card.name  # type: ignore[attr-defined]
    text = printed(monkeypatch, capsys, name)
    for said in ("test_accuracy", "sha256"):
        value = getattr(card, said)
        assert (f"{value:.2%}" if said == "test_accuracy" else value) in text
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    found: dict[str, object] = {}
    exec(code[1], found)  # the card's own lines
    assert found["scores"].shape == (2, 10)  # type: ignore[attr-defined]
    recipe = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert recipe is not None
    (tmp_path / "settings.yaml").write_text(recipe[1])
    settings, trained = resolve(**read_settings(tmp_path / "settings.yaml")), RunFolder(ROOT / name).config()
    assert settings == trained
    assert recipe[1].startswith("model: "), "one setting per line"


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, "capsnet-mnist")
    assert stopped.value.code == 2
    assert "did you mean 'capsnet-mnist-laptop'?" in " ".join(capsys.readouterr().err.split())
