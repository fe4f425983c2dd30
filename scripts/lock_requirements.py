"""Generate requirements/*.txt: python scripts/lock_requirements.py, in an environment with all extras installed.

constraints.txt pins the versions; these files also pin the bytes. Each lists every package that a command of the
Makefile installs, with the SHA-256 of all its wheels for every supported Python and system, as the package index shows
them, so that pip's --require-hashes refuses anything else that a mirror or a proxy may send. Source distributions are
omitted, because building one runs its code. Each package is preceded by the Python versions that it requires; a
package that does not support the oldest Python of pyproject.toml is an error.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag

from licenses import installed, normal
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pip._internal.models.index import PyPI

from torchcaps.progress import progress_bar

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
# Wheels for a Python older than the supported ones; abi3 wheels of such a Python work with all later ones.
TOO_OLD = re.compile(r"-(cp2\d|cp3\d|cp310|pp\d+)-(?!abi3)|-py2-none-")
HEAD = """# Made by scripts/lock_requirements.py from constraints.txt: do not edit.
# Holds for Python {python}, on every system.
# pip install --require-hashes --only-binary=:all: --no-deps -r {name}
"""


class Release(NamedTuple):
    """One version of a package in the index."""

    python: str  # Requires-Python, empty if not stated
    hashes: list[str]


class Links(HTMLParser):
    """File names, Python requirements and hashes on a package's page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        address, fragment = urldefrag(attributes.get("href") or "")
        if tag == "a" and fragment.startswith("sha256="):
            python = attributes.get("data-requires-python") or ""
            self.found[unquote(address.rsplit("/", 1)[-1])] = (python, fragment.removeprefix("sha256="))


def index() -> str:
    """The package index that pip is configured to use."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return (found.stdout.strip() or PyPI.simple_url).rstrip("/")


def release(name: str, version: str, source: str) -> Release:
    """The wheels of a version that a supported Python can install."""
    links = Links()
    with urllib.request.urlopen(f"{source}/{name}/", timeout=120) as answer:
        links.feed(answer.read().decode())
    wheel = re.compile(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}-.*\.whl", re.IGNORECASE)
    found = [link for file, link in links.found.items() if wheel.fullmatch(file) and not TOO_OLD.search(file)]
    if not found:
        sys.exit(f"{name} {version} has no wheel with a hash in the index that pip uses")
    return Release(python=found[0][0], hashes=sorted({digest for _, digest in found}))


def oldest_python(supported: str) -> str:
    """The lowest version that a ">=3.11" of pyproject.toml allows, as "3.11.0"."""
    return supported.removeprefix(">=") + ".0"


def needed(roots: Iterable[str], pins: dict[str, str]) -> set[str]:
    """All direct and indirect dependencies on any system: environment markers count as true.

    A package without a pin is only needed on another Python or system; otherwise `pip check` would report it.
    """
    waiting, seen = [Requirement(root) for root in roots], set()
    while waiting:
        asked = waiting.pop()
        for extra in {"", *asked.extras}:
            name = normal(asked.name)
            if name not in pins or (name, extra) in seen:
                continue
            seen.add((name, extra))
            for each in map(Requirement, (installed(name) and metadata.requires(name)) or []):
                extras = re.findall(r'extra == "([^"]+)"', str(each.marker or ""))
                if extra in (extras or [""]):
                    waiting.append(each)
    return {name for name, _ in seen}


def main() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {normal(name): version for name, _, version in (line.partition("==") for line in lines) if version}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    core = needed([*project["project"]["dependencies"], *project["build-system"]["requires"]], pins)
    parts = {"core": core} | {name: needed(extras[name], pins) - core for name in ("dev", "docs", "gpu")}
    if lost := pins.keys() - set().union(*parts.values()):
        sys.exit(f"constraints.txt pins packages that nothing needs: {', '.join(sorted(lost))}")
    source = index()
    with progress_bar("asking the index", len(pins)) as advance, ThreadPoolExecutor(6) as pool:

        def asked(name: str) -> tuple[str, Release]:
            found = release(name, pins[name], source)
            advance(1)
            return name, found

        found = dict(pool.map(asked, pins))
    supported = project["project"]["requires-python"]
    oldest = oldest_python(supported)
    if newer := {name: each.python for name, each in found.items() if oldest not in SpecifierSet(each.python)}:
        sys.exit(f"torchcaps supports Python {oldest}, but these pinned packages do not: {newer}. Pin older versions")
    FOLDER.mkdir(exist_ok=True)
    for part, names in parts.items():
        text = HEAD.format(python=supported, name=f"requirements/{part}.txt")
        text += "-r core.txt\n" if part != "core" else ""
        for name in sorted(names):
            text += f"# Python {found[name].python or 'any'}\n{name}=={pins[name]}"
            text += "".join(f" \\\n    --hash=sha256:{each}" for each in found[name].hashes) + "\n"
        (FOLDER / f"{part}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
