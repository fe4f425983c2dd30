"""Installation: from the repository, and without gigabytes of CUDA that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.doc_blocks import PAGES

ROOT = Path(__file__).parents[1]
STUB = """#!/bin/sh
case "$*" in
  -c*) exit 1 ;;
  *+cpu*|*--index-url*) [ "$CPU_BUILD" = yes ] || exit 1 ;;
esac
echo "pip $*" >> installed
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the package index has the CPU build")
@pytest.mark.parametrize("reachable", ["yes", "no"])
def test_the_large_build_is_announced_before_it_is_taken(tmp_path: Path, reachable: str) -> None:
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    (tmp_path / "bin").mkdir()
    for tool in ("uname", "sed"):  # and no nvidia-smi
        found = next(Path(folder) / tool for folder in os.get_exec_path() if (Path(folder) / tool).exists())
        (tmp_path / "bin" / tool).symlink_to(found)
    done = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "install_torch.sh", "./python"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path / "bin"), "CPU_BUILD": reachable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("about 4.8 GB" in done.stderr) == (reachable == "no")
    installed = (tmp_path / "installed").read_text().splitlines() if (tmp_path / "installed").exists() else []
    assert any("-c constraints.txt" in line for line in installed) == (reachable == "no")


def test_nothing_says_that_torchcaps_is_on_pypi() -> None:
    sources = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    for path in sources:
        text = path.read_text(encoding="utf-8")
        assert "pip install torchcaps" not in text, path
        assert "pip install 'torchcaps" not in text, path
        assert "torchcaps[" not in text, f"{path} names an extra of a package that is not on PyPI"
