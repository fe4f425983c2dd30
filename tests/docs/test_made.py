"""Generated parts of README and the documentation are current."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.doc_blocks import ROOT
from tests.helpers.synthetic_results import ENVIRONMENT
from torchcaps.files import write_json
from torchcaps.reproduce.spec import TOPICS, list_papers, load_spec

SCRIPTS = ROOT / "scripts"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="only a clone has the scripts")
AGAIN = "run: python scripts/docs_pages.py"


@pytest.fixture(scope="module")
def pages() -> Any:
    """The script that generates all pages, as a module."""
    import docs_pages

    return docs_pages


def test_pages_agree_with_registries_and_results() -> None:
    command = [sys.executable, "-m", "tests.helpers.stale_pages"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"parts": [], "papers": [], "without page": []}, AGAIN


def test_every_claim_has_a_topic_and_every_topic_a_section() -> None:
    missing = [
        f"{paper}: {name}"
        for paper in list_papers()
        for name, claim in load_spec(paper).claims.items()
        if claim.topic is None
    ]
    assert not missing
    page = (ROOT / "docs" / "learned.md").read_text(encoding="utf-8")
    assert all(page.count(f"docs_pages.py: learned {topic} -->") == 1 for topic in TOPICS)


def test_a_page_without_an_end_and_an_unknown_part_are_refused(pages: Any) -> None:
    start = "<!-- made by scripts/docs_pages.py: {} -->"
    with pytest.raises(SystemExit, match=r"page.md asks for 'claim', which nobody makes"):
        pages.filled(f"{start.format('claim')}\nold\n<!-- end -->", {"claims": str}, "page.md")
    with pytest.raises(SystemExit, match=r"page.md has lost an '<!-- end -->'"):
        pages.filled(start.format("claims"), {"claims": str}, "page.md")
    filled = pages.filled(f"a\n{start.format('part x y')}\nold\n<!-- end -->\nz", {"part": "{}-{}".format}, "page.md")
    assert filled == f"a\n{start.format('part x y')}\n\nx-y\n\n<!-- end -->\nz"


def test_a_changed_result_changes_the_pages(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    parts = (
        "which-accuracy",
        "model-results capsnet",
        "routing-results dynamic",
        "speed",
        "claims-summary {}",
        "which-not",
    )
    marks = "\n".join(f"<!-- made by scripts/docs_pages.py: {part} -->\n<!-- end -->" for part in parts)
    (tmp_path / "README.md").write_text(marks)
    for name in ("gu2021/table1", "bench"):
        shutil.copytree(ROOT / "results" / name, tmp_path / "results" / name)
    run = {"confusion": [], "environment": ENVIRONMENT | {"command": "x --train-images 12345 --epochs 1"}, "seed": 0}
    run |= {"size": "laptop", "test_images": 5000, "parameters": 7}
    accuracies = {"capsnet": 0.91, "convnet-avg": 0.97, "capsnet:routing=uniform": 0.909}
    write_json(
        tmp_path / "results" / "mnist-grid.json",
        {
            label: [run | {"model": label.partition(":")[0], "test_accuracy": share}]
            for label, share in accuracies.items()
        },
    )
    (text,) = pages.made_parts(tmp_path).values()
    assert "**Most accurate under this budget:** `convnet-avg`, 97.0 %." in text
    assert (
        "Undecided (one seed): the best capsule network here, `capsnet`, and the best plain one, `convnet-avg`" in text
    )
    assert "12,345 images of MNIST once" in text
    assert "| `capsnet` | 91.0 (90.2 to 91.8) | 7 |" in text
    assert "| `capsnet:routing=uniform` |" in text.partition("model-results")[2].partition("routing-results")[0]
    assert "| `capsnet:routing=uniform` |" not in text.partition("routing-results")[2]
    assert "CapsNet: AffNIST" in text
    assert "- hinton2018: nothing at all" in text
    claims = [len(load_spec(paper).claims) for paper in list_papers()]
    assert f"f {sum(claims)} claims in {sum(map(bool, claims))} papers" in text
