"""Paper specs: the trainings, tables, figures and claims of a paper as data, one YAML file per paper.

A training is the configuration of a run, with changes per profile. A cell is one number of a table or one part of a
figure: which training it needs, which measure is applied, and the value that the paper published. A claim is an
ordering or a difference that the paper states. Nothing is ever computed from a published value.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import parse_yaml

Profile = Literal["laptop", "paper"]
PROFILES: tuple[Profile, ...] = ("laptop", "paper")
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # becomes part of a file name


class SpecModel(BaseModel):
    """Base of everything in a spec: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PerProfile(SpecModel):
    """Settings for each profile."""

    laptop: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, Any] = Field(default_factory=dict)

    def of(self, profile: Profile) -> dict[str, Any]:
        """Return the settings of one profile."""
        found: dict[str, Any] = getattr(self, profile)
        return found


class TrainingSpec(PerProfile):
    """Settings of a run (see RunConfig, without ``seed`` and ``size``), with changes per profile.

    ``matched_to`` names a training; this one stops when it reaches that one's accuracy on familiar viewpoints
    (hinton2018, Table 2).
    """

    settings: dict[str, Any]
    matched_to: str | None = None


class Cell(SpecModel):
    """One number of a table, or one part of a figure.

    A cell without a measure is cited by the paper from elsewhere: it is printed, but never measured.
    """

    row: str
    column: str
    training: str | None = None  # name in Spec.trainings; some measures need none
    others: dict[str, str] = Field(default_factory=dict)  # further trainings that the measure needs, by role
    measure: str | None = None  # name in the registry of measures
    settings: dict[str, Any] = Field(default_factory=dict, alias="with")  # arguments of the measure
    published: float | None = None  # in the unit of the measure
    profiles: tuple[Profile, ...] = PROFILES  # profiles in which the cell can be measured
    note: str = ""


class Table(SpecModel):
    """A table or figure of a paper."""

    title: str
    kind: Literal["table", "figure"] = "table"
    about: str = ""  # how it is measured here, where the title does not say it
    seeds: dict[Profile, int] = {"laptop": 3, "paper": 5}
    settings: PerProfile = Field(default_factory=PerProfile, alias="with")  # for all measures; a cell's own win
    cells: dict[Name, Cell]


class ClaimComparison(SpecModel):
    """An inequality between measured cells: ``greater: [a, b]``, ``above: [a, 1.5]`` or ``below: [a, 1.5]``.

    A term is ``table/cell`` or a difference ``table/cell - table/cell``.
    """

    greater: tuple[str, str] | None = None
    above: tuple[str, float] | None = None
    below: tuple[str, float] | None = None

    def terms(self) -> list[list[str]]:
        """Return the cells of each term: one cell, or two of which the second is subtracted."""
        texts = self.greater or [(self.above or self.below or ("", 0.0))[0]]
        return [[cell.strip() for cell in text.split(" - ")] for text in texts]


class Claim(SpecModel):
    """A statement of the paper; it holds if all its comparisons hold."""

    statement: str
    source: str  # place in the paper
    comparisons: list[ClaimComparison] = Field(min_length=1, alias="all")


class Spec(SpecModel):
    """A paper."""

    paper: Name
    title: str
    authors: str
    about: str = ""  # what the laptop profile changes
    defaults: PerProfile = Field(default_factory=PerProfile)  # settings of every training
    trainings: dict[Name, TrainingSpec]
    tables: dict[Name, Table]
    claims: dict[Name, Claim]

    def cell(self, path: str) -> Cell:
        """Return the cell ``table/cell``."""
        table, _, name = path.partition("/")
        if table not in self.tables:
            raise unknown_name(f"table of {self.paper}", table, self.tables)
        if name not in self.tables[table].cells:
            raise unknown_name(f"cell of {self.paper} {table}", name, self.tables[table].cells)
        return self.tables[table].cells[name]


def list_papers() -> list[str]:
    """Return the names of all papers that have a spec in this package.

    >>> "gu2021" in list_papers()
    True
    """
    found = (entry.name for entry in files("torchcaps.reproduce").joinpath("specs").iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def load_spec(paper: str) -> Spec:
    """Load the spec of a paper in this package."""
    if paper not in list_papers():
        raise unknown_name("paper", paper, list_papers())
    text = files("torchcaps.reproduce").joinpath("specs", f"{paper}.yaml").read_text(encoding="utf-8")
    return _checked(yaml.safe_load(text), f"{paper}.yaml")  # our own file: it may use anchors


def parse_spec(text: str, source: str = "the text") -> Spec:
    """Parse a spec from untrusted YAML (no anchors, no tags) and check it; ``source`` names it in errors."""
    return _checked(parse_yaml(text, source), source)


def _checked(value: Any, source: str) -> Spec:
    """Validate a spec and every reference in it."""
    try:
        spec = Spec.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TorchcapsError(
            f"{source} is not a spec: {where[:200]}: {' '.join(first['msg'].split())[:300]}"
        ) from error
    trainings = [training.matched_to for training in spec.trainings.values()]
    for table in spec.tables.values():
        for cell in table.cells.values():
            trainings += [cell.training, *cell.others.values()]
    for name in filter(None, trainings):
        if name not in spec.trainings:
            raise unknown_name(f"training of {spec.paper}", name, spec.trainings)
    for claim in spec.claims.values():
        for comparison in claim.comparisons:
            for term in comparison.terms():
                for path in term:
                    spec.cell(path)
    return spec
