"""Imports point downward only: a package may import the packages below it, and nothing above or beside it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "torchcaps"

BOTTOM = {"errors", "registry", "files", "html", "progress", "environment", "runtime"}
# Each package with the packages that it may import in addition to BOTTOM; docs/architecture.md shows them.
MAY_USE = {
    "kernels": set(),
    "functional": {"kernels"},
    "data": set(),
    "losses": set(),
    "routing": {"functional", "kernels"},
    "layers": {"functional", "kernels", "routing"},
    "models": {"functional", "kernels", "routing", "layers", "losses"},
    "analysis": {"functional", "routing", "layers", "models", "data"},
    "attacks": {"functional", "layers", "models", "data"},
    "train": {"analysis", "models", "losses", "data", "routing", "kernels", "plugins"},
    "pretrained": {"models", "train"},
    "prediction": {"pretrained", "train", "analysis", "models", "data"},
    "export": {"pretrained", "models", "kernels"},
    "sklearn": {"train", "models", "data"},
    "testing": {"functional", "routing", "layers", "models", "losses"},
    "plugins": set(),
    "evaluate": {"train", "attacks", "analysis", "models", "data"},
    "compare": {"evaluate", "train", "attacks", "analysis", "models", "data"},
    "bench": {"export", "train", "losses", "data", "models", "layers", "routing", "kernels", "functional"},
    "doctor": {"bench", "train", "data", "models", "routing", "kernels"},
    "reproduce": {"bench", "compare", "evaluate", "train", "attacks", "analysis", "models", "layers", "data"},
    "demo": {"reproduce", "pretrained", "evaluate", "train", "attacks", "analysis", "models", "layers", "routing"}
    | {"kernels", "data", "export", "__version__"},
    "cli": {"demo", "reproduce", "compare", "evaluate", "train", "attacks", "analysis", "models", "layers", "routing"}
    | {"bench", "data", "doctor", "losses", "plugins", "pretrained", "prediction", "export", "__version__"},
}
# Imports inside a function that point upward, with the reason.
LAZY = {"models/registry.py": {"pretrained"}}  # create_model(pretrained=...) loads bundled weights
FILES = sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path, *, only_top: bool = False) -> set[str]:
    packages = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if only_top else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "torchcaps":
            packages |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchcaps."):
            packages.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path} imports relatively: write the whole name")
        elif isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("torchcaps.")}
    return packages


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return  # the top level may name every package, lazily
    allowed = BOTTOM if package in BOTTOM else MAY_USE[package] | BOTTOM | {package}
    lazy = LAZY.get(str(path.relative_to(SOURCE)), set())
    assert imported_packages(path) <= allowed | lazy, f"{package} must not import {imported_packages(path) - allowed}"
    assert imported_packages(path, only_top=True) <= allowed, f"{package} must import {lazy} inside the function"


def test_command_line_starts_without_torch() -> None:
    """Heavy imports at the top of a cli file would make every --help slow."""
    for path in (SOURCE / "cli").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = {
            name.split(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert not top & {"torch", "numpy", "matplotlib", "lightning_fabric", "pydantic"}, path


TRAIN = """
import sys
from torchcaps.cli.main import main
sys.argv = "torchcaps train lenet --data glyphs --steps 1 --train-images 20 --test-images 10 --out run".split()
try:
    main()
finally:
    print(*sys.modules)
"""


def test_training_loads_neither_attacks_nor_matplotlib(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, capture_output=True, text=True, check=False)
    loaded = set(done.stdout.split())
    assert "torchcaps.train.loop" in loaded, done.stderr
    unwanted = {"matplotlib", "torchcaps.attacks", "torchcaps.evaluate.acgan", "torchcaps.compare.report"}
    assert not loaded & unwanted
    assert len([name for name in loaded if name.startswith("torchcaps")]) < 140  # every model and routing is one


def test_public_names_are_defined_once() -> None:
    """A name that two modules define makes every reader ask which one is meant."""
    defined: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}
