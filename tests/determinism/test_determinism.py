"""The same command twice gives the same bytes, but for times."""

from __future__ import annotations

import json
from pathlib import Path

from tests.determinism.twice import differences, train


def test_the_same_command_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        train(tmp_path / name, "capsnet", threads=1)
    assert differences(tmp_path / "one", tmp_path / "other") == []
    result = tmp_path / "other" / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"test_accuracy": -1.0}))
    (tmp_path / "other" / "config.yaml").write_text("seed: 1")
    assert differences(tmp_path / "one", tmp_path / "other") == ["config.yaml", "result.json"]
