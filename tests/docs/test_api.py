"""docs/api lists exactly what each public package exports."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.helpers.doc_blocks import ROOT

API = ROOT / "docs" / "api"
pytestmark = pytest.mark.skipif(not API.is_dir(), reason="only a clone has the documentation")
PACKAGES = ("attacks", "data", "functional", "layers", "losses", "models", "routing")


def listed_names(package: str) -> list[str]:
    """Names of ``torchcaps.<package>`` that the API pages list, in their order; pages of whole modules are skipped."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(API.glob("*.md")))
    names: list[str] = re.findall(rf"^::: torchcaps\.{package}\.(\w+)$", text, re.MULTILINE)
    exported = import_module(f"torchcaps.{package}").__all__
    return [name for name in names if name in exported or not is_module(package, name)]


def is_module(package: str, name: str) -> bool:
    parent = import_module(f"torchcaps.{package}")
    return hasattr(parent, "__path__") and find_spec(f"torchcaps.{package}.{name}") is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_the_api_pages_list_what_a_package_exports(package: str) -> None:
    listed = listed_names(package)
    assert len(listed) == len(set(listed)), "a name is listed twice"
    assert sorted(listed) == sorted(import_module(f"torchcaps.{package}").__all__)


def test_everything_that_the_api_pages_list_exists() -> None:
    for page in API.glob("*.md"):
        for name in re.findall(r"^::: (torchcaps[\w.]*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            found = hasattr(import_module(module), attribute) if module else True
            assert found or import_module(name), f"{page.name} lists {name}, which does not exist"
