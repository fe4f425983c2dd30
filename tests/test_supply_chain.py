"""Dependencies are pinned, come from the package index, and have a documented license."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "constraints.txt").is_file(), reason="only a clone has the constraints")
MALICIOUS = {"lightning-fabric": {"2.6.2", "2.6.3"}}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in found), (
        "exact versions, and nothing else"
    )
    return {normal(line.split("==")[0]): line.split("==")[1] for line in found}


def named(requirement: str) -> str:
    return normal(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for more in project["optional-dependencies"].values() for each in more]
    wanted = [*project["dependencies"], *extras]
    assert {named(each) for each in wanted} <= pins().keys()
    assert not any("@" in each or "://" in each for each in wanted), "only from the registry"


def locked(part: str) -> dict[str, str]:
    """Packages and versions of a file in requirements/, each of which must have hashes and nothing else."""
    text = (ROOT / "requirements" / f"{part}.txt").read_text(encoding="utf-8").replace(" \\\n    ", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#") and line != "-r core.txt"]
    found = [re.fullmatch(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)", line) for line in lines]
    assert all(found), [line[:60] for line, match in zip(lines, found, strict=True) if not match]
    return {match[1]: match[2] for match in found if match}


def test_hashes_are_those_of_the_pinned_versions() -> None:
    """If this fails, run scripts/lock_requirements.py: constraints.txt has changed."""
    parts = {part: locked(part) for part in ("core", "dev", "docs", "gpu")}
    assert parts["core"] | parts["dev"] | parts["docs"] | parts["gpu"] == pins()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {named(each) for each in needed} <= parts["core"].keys()
    for extra in ("dev", "docs", "gpu"):
        more = project["project"]["optional-dependencies"][extra]
        assert {named(each) for each in more} <= parts["core"].keys() | parts[extra].keys()


def test_installing_compares_hashes_and_builds_nothing() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    locked = next(line for line in lines if line.startswith("LOCKED := "))
    assert {"--require-hashes", "--only-binary=:all:", "-r"} <= set(locked.split())
    installs = [line for line in lines if line.startswith(("\t$(PIP)", "\t$(LOCKED)"))]
    assert len(installs) == 5
    assert all(
        re.fullmatch(r"\t\$\(LOCKED\) requirements/\w+\.txt", line) or line == "\t$(PIP) --no-build-isolation -e ."
        for line in installs
    )


@pytest.mark.parametrize("part", ["core", "dev", "docs", "gpu"])
def test_no_pinned_package_needs_a_newer_python_than_we_do(part: str) -> None:
    """Reads what scripts/lock_requirements.py took from the packages' metadata."""
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    oldest = supported.removeprefix(">=") + ".0"
    text = (ROOT / "requirements" / f"{part}.txt").read_text(encoding="utf-8")
    assert f"# Holds for Python {supported}," in text
    asked = {name: python for python, name in re.findall(r"^# Python (.+)\n([a-z0-9-]+)==", text, re.MULTILINE)}
    assert asked.keys() == locked(part).keys()
    assert [name for name, python in asked.items() if python != "any" and oldest not in SpecifierSet(python)] == []


def test_no_script_builds_a_source_distribution() -> None:
    """Of the clients in scripts/ and src/, pip takes wheels only and npm runs no scripts."""
    guards = {r"pip\W+(install|download)\b": "--only-binary=:all:", r"npm\W+(install|pack)\b": "--ignore-scripts"}
    paths = [
        path for folder in ("scripts", "src") for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    for client, guard in guards.items():
        commands = {
            path: text for path, text in texts.items() if re.search(rf'"-m", "{client}|-m {client}|"{client}', text)
        }
        assert commands
        assert [path.name for path, text in commands.items() if guard not in text] == []


def test_no_version_that_is_known_to_be_malicious() -> None:
    for name, versions in MALICIOUS.items():
        assert pins()[name] not in versions
        assert metadata.version(name) not in versions


def test_licenses_are_written_down() -> None:
    page = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"]:
        assert re.search(rf"^\| {re.escape(named(requirement))} \| \S+ \| \S+", page, re.MULTILINE), requirement
    core = page.partition("## Extras")[0]
    assert "not stated" not in core
    assert not re.search(r"\bA?GPL", core), "nothing that torchcaps needs may bind its users to the GPL"
