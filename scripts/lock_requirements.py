"""Write requirements/*.txt: python scripts/lock_requirements.py, in an environment in which everything is installed.

constraints.txt says which version of a package is taken; these files say also which bytes. Each has every package that
a command of the Makefile installs, with the SHA-256 of all its files for Python 3.11 and newer on every system, as the
package index shows them, so that pip's --require-hashes refuses whatever else a mirror or a proxy may send.
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
from urllib.parse import unquote, urldefrag

from licences import installed, normal
from packaging.requirements import Requirement
from pip._internal.models.index import PyPI

from torchcaps.progress import progress_bar

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
# Made for one Python that is older than ours; abi3 wheels of such a Python work with all later ones.
TOO_OLD = re.compile(r"-(cp2\d|cp3\d|cp310|pp\d+)-(?!abi3)|-py2-none-")
HEAD = """# Made by scripts/lock_requirements.py from constraints.txt: do not edit.
# pip install --require-hashes --no-deps -r {name}
"""


class Links(HTMLParser):
    """Names and hashes of the files on a package's page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address, fragment = urldefrag(dict(attrs).get("href") or "")
        if tag == "a" and fragment.startswith("sha256="):
            self.found[unquote(address.rsplit("/", 1)[-1])] = fragment.removeprefix("sha256=")


def index() -> str:
    """The package index that pip is set to, else its own."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return (found.stdout.strip() or PyPI.simple_url).rstrip("/")


def hashes(name: str, version: str, source: str) -> list[str]:
    """Of all files of a version that a Python of ours can take."""
    links = Links()
    with urllib.request.urlopen(f"{source}/{name}/", timeout=120) as answer:
        links.feed(answer.read().decode())
    ours = re.compile(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)", re.IGNORECASE)
    found = {digest for file, digest in links.found.items() if ours.fullmatch(file) and not TOO_OLD.search(file)}
    if not found:
        sys.exit(f"{name} {version} is not in the index that pip uses, or has no hashes there")
    return sorted(found)


def needed(roots: Iterable[str], pins: dict[str, str]) -> set[str]:
    """What the requirements bring on any system: marks for a system or a Python are taken as true.

    What has no pin is for a Python or a system that ours are not, as `pip check` would tell.
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
    parts = {"core": core} | {name: needed(extras[name], pins) - core for name in ("dev", "docs")}
    if lost := pins.keys() - set().union(*parts.values()):
        sys.exit(f"constraints.txt pins what nothing needs: {', '.join(sorted(lost))}")
    source = index()
    with progress_bar("asking the index", len(pins)) as advance, ThreadPoolExecutor(6) as pool:

        def asked(name: str) -> tuple[str, list[str]]:
            found = hashes(name, pins[name], source)
            advance(1)
            return name, found

        found = dict(pool.map(asked, pins))
    FOLDER.mkdir(exist_ok=True)
    for part, names in parts.items():
        text = HEAD.format(name=f"requirements/{part}.txt") + ("-r core.txt\n" if part != "core" else "")
        for name in sorted(names):
            text += f"{name}=={pins[name]}" + "".join(f" \\\n    --hash=sha256:{each}" for each in found[name]) + "\n"
        (FOLDER / f"{part}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
