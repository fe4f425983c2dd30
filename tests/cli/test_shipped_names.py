"""Names of shipped weights in place of a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_explain import Typed, typed  # noqa: F401  (a fixture)
from torchcaps.data.preview import as_picture
from torchcaps.pretrained import load_samples

pytestmark = pytest.mark.process

NAME = "capsnet-mnist-laptop"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Test digits in one folder per class."""
    samples = load_samples("mnist")
    assert samples is not None
    for number, label in enumerate(samples.labels.tolist()):
        (tmp_path / "digits" / str(label)).mkdir(parents=True, exist_ok=True)
        as_picture(samples.images[number].float() / 255, 1).save(tmp_path / "digits" / str(label) / f"{number}.png")
    return tmp_path / "digits"


def test_evaluate(typed: Typed, digits: Path, tmp_path: Path) -> None:  # noqa: F811
    code, said = typed("evaluate", NAME, "--images", str(digits))
    assert code == 0, said
    found = json.loads((tmp_path / NAME / "evaluation" / "images.json").read_text())
    assert found["accuracy"] > 0.95
    assert f"Accuracy {found['accuracy']:.2%} on 40 images, expected calibration error" in said


def test_explain(typed: Typed, digits: Path, tmp_path: Path) -> None:  # noqa: F811
    for _ in range(2):  # the directory of the first call does not hide the weights from the second
        code, said = typed("explain", NAME, "--images", str(digits), "--only", "couplings")
        assert code == 0, said
    assert "true label: 9" in said
    assert (tmp_path / NAME / "explain" / "index.html").is_file()
