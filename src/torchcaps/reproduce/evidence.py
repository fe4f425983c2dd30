"""What a results folder holds about a paper, cell by cell: nothing here measures anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.plain_yaml import read_yaml
from torchcaps.reproduce.results import CellResult, find_results
from torchcaps.reproduce.spec import PROFILES, Cell, Profile, Spec
from torchcaps.reproduce.work import plan


@dataclass(frozen=True)
class Evidence:
    """What is known about one cell in one profile.

    Args:
        results: one for each seed, without those that failed.
        failures: those that failed, of seeds that have no result.
        outdated: the results were made by earlier settings of the spec, and newer ones are not there.
    """

    cell: Cell
    results: tuple[CellResult, ...] = ()
    failures: tuple[CellResult, ...] = ()
    outdated: bool = False

    @property
    def values(self) -> dict[int, float]:
        """The numbers by seed; a picture or a curve has none."""
        return {result.seed: result.value for result in self.results if result.value is not None}

    @property
    def images(self) -> int | None:
        """Of how many images the value is a share, if it is one."""
        valued = [result for result in self.results if result.value is not None]
        shares = [each.images for each in valued if each.images and each.unit == "%" and 0 <= (each.value or 0) <= 100]
        return min(shares) if shares and len(shares) == len(valued) else None


@dataclass(frozen=True)
class PaperEvidence:
    """A paper in one profile: the evidence for each ``table/cell``."""

    spec: Spec
    profile: Profile
    folder: Path  # of this paper's results
    cells: dict[str, Evidence]
    notes: dict[str, str]  # ours on claims, by their names

    def has_results(self, paths: Iterable[str] | None = None) -> bool:
        """Whether anything was measured, of these cells or at all."""
        return any(self.cells[path].results or self.cells[path].failures for path in paths or self.cells)


def gather(spec: Spec, folder: Path) -> list[PaperEvidence]:
    """All results of a paper, for each profile; a result that fits no cell of the spec is refused."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in find_results(folder, spec.paper):
        path = f"{result.table}/{result.cell}"
        try:
            spec.cell(path)
        except TorchcapsError as error:
            raise TorchcapsError(
                f"{folder / spec.paper} holds a result that the paper's spec does not: {error}"
            ) from None
        found.setdefault((result.profile, path), []).append(result)
    notes = read_notes(spec, folder)
    return [
        PaperEvidence(spec, profile, folder / spec.paper, _cells(spec, profile, found), notes) for profile in PROFILES
    ]


def read_notes(spec: Spec, folder: Path) -> dict[str, str]:
    """What was written beside the results of a paper about its claims: ``notes.yaml``, a text for a claim's name."""
    source = folder / spec.paper / "notes.yaml"
    if not source.is_file():
        return {}
    notes = read_yaml(source) or {}
    if not isinstance(notes, dict) or not all(isinstance(text, str) and text.strip() for text in notes.values()):
        raise TorchcapsError(f"{source} must hold a text for each name of a claim, such as 'name: what we checked'")
    for name in notes:
        if name not in spec.claims:
            raise unknown_name(f"claim in {source}", str(name), spec.claims)
    return {name: " ".join(text.split()) for name, text in notes.items()}


def _cells(spec: Spec, profile: Profile, found: dict[tuple[str, str], list[CellResult]]) -> dict[str, Evidence]:
    asked = {f"{work.table}/{work.name}": work.fingerprint() for work in plan(spec, profile, seeds=1)}
    return {
        path: _evidence(cell, found.get((profile, path), []), asked.get(path))
        for table, each in spec.tables.items()
        for name, cell in each.cells.items()
        for path in [f"{table}/{name}"]
    }


def _evidence(cell: Cell, found: list[CellResult], fingerprint: str | None) -> Evidence:
    """Results of the settings as they are now; only where there are none, those of earlier settings."""
    current = [result for result in found if result.fingerprint == fingerprint]
    used = sorted(current or found, key=lambda result: result.seed)
    return Evidence(
        cell,
        tuple(result for result in used if result.error is None),
        tuple(result for result in used if result.error is not None),
        outdated=bool(found) and not current,
    )
