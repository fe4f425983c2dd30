"""From names that a user gives to the work they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.reproduce.spec import PROFILES, Profile, Spec, list_papers, load_spec
from torchcaps.reproduce.work import Work, plan

EVERY_PAPER = "all"


def chosen_specs(paper: str) -> list[Spec]:
    """The spec of a paper, or all of them for 'all'."""
    return [load_spec(name) for name in (list_papers() if paper == EVERY_PAPER else [paper])]


def checked_profile(name: str) -> Profile:
    """The profile of that name."""
    for profile in PROFILES:
        if profile == name:
            return profile
    raise unknown_name("profile", name, PROFILES)


def chosen_work(
    specs: Iterable[Spec], profile: Profile, *, table: str | None, cells: Sequence[str], seeds: int | None
) -> list[Work]:
    """What there is to do for some papers, or for a table or cells of one; every name is checked."""
    specs = list(specs)
    if len(specs) > 1 and (table or cells):
        raise TorchcapsError("a table or a cell belongs to one paper: name the paper instead of 'all'")
    works = []
    for spec in specs:
        if table and table not in spec.tables:
            raise unknown_name(f"table of {spec.paper}", table, spec.tables)
        tables = [table] if table else list(spec.tables)
        known = {name for each in tables for name in spec.tables[each].cells}
        for cell in cells:
            if cell not in known:
                raise unknown_name(f"cell of {' '.join([spec.paper, *([table] if table else [])])}", cell, known)
        works += plan(spec, profile, tables=tables, cells=cells, seeds=seeds)
    if not works:
        raise TorchcapsError(
            f"there is nothing to measure in profile {profile}: these cells are cited by the paper, or are measured in "
            "another profile; see 'torchcaps papers'"
        )
    return works
