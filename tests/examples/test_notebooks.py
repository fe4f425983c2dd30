"""The notebooks run without network access and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = [pytest.mark.process, pytest.mark.skipif(not FOLDER.is_dir(), reason="only a clone has the notebooks")]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["add-a-routing", "what-a-capsule-holds", "your-own-images"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "store it without outputs"
    assert notebook.metadata.kernelspec.name == "python3"
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    pictures = [each for cell in cells for each in cell.outputs if "image/png" in each.get("data", {})]
    assert pictures, "a notebook shows something"
