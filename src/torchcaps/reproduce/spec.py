"""What a paper's tables and figures hold, as data: one YAML file for each paper.

A training is a set of settings of a run, with changes for each profile. A cell is one number of a table, or one part of
a figure: which training, which measure of it, and what the paper printed. A claim is an ordering or a difference that
the paper states. Nothing is ever computed from a published value.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchcaps.errors import TorchcapsError, unknown_name

Profile = Literal["laptop", "paper"]
PROFILES: tuple[Profile, ...] = ("laptop", "paper")
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # becomes part of a file's name


class SpecModel(BaseModel):
    """Anything in a spec: what is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PerProfile(SpecModel):
    """A value for each profile."""

    laptop: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, Any] = Field(default_factory=dict)

    def of(self, profile: Profile) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, profile)
        return found


class TrainingSpec(PerProfile):
    """Settings of a run (see RunConfig, without ``seed`` and ``size``), and what each profile changes of them.

    ``matched_to`` names a training whose accuracy from familiar sides ends this one (hinton2018, Table 2).
    """

    settings: dict[str, Any]
    matched_to: str | None = None


class Cell(SpecModel):
    """One number of a table, or one part of a figure.

    A cell without a measure is cited by the paper, not its own: it is printed, and nobody measures it.
    """

    row: str
    column: str
    training: str | None = None  # name in the spec's trainings; some measures need none
    others: dict[str, str] = Field(default_factory=dict)  # further trainings that the measure needs, by role
    measure: str | None = None  # name in the registry of measures
    settings: dict[str, Any] = Field(default_factory=dict, alias="with")  # of the measure
    published: float | None = None  # in the unit of the measure
    profiles: tuple[Profile, ...] = PROFILES  # where it can be run
    note: str = ""


class Table(SpecModel):
    """A table or figure of a paper."""

    title: str
    kind: Literal["table", "figure"] = "table"
    about: str = ""  # how it is measured here, where the title does not say it all
    seeds: dict[Profile, int] = {"laptop": 3, "paper": 5}
    settings: PerProfile = Field(default_factory=PerProfile, alias="with")  # of all its measures; a cell's own win
    cells: dict[Name, Cell]


class ClaimComparison(SpecModel):
    """What must hold between measured cells: ``greater: [a, b]``, ``above: [a, 1.5]`` or ``below: [a, 1.5]``.

    A term is ``table/cell`` or a difference ``table/cell - table/cell``.
    """

    greater: tuple[str, str] | None = None
    above: tuple[str, float] | None = None
    below: tuple[str, float] | None = None

    def terms(self) -> list[list[str]]:
        """The cells of each term: one, or two of which the second is taken away."""
        texts = self.greater or [(self.above or self.below or ("", 0.0))[0]]
        return [[cell.strip() for cell in text.split(" - ")] for text in texts]


class Claim(SpecModel):
    """A statement of the paper: it holds if all comparisons do."""

    statement: str
    source: str  # where in the paper
    comparisons: list[ClaimComparison] = Field(min_length=1, alias="all")


class Spec(SpecModel):
    """A paper."""

    paper: str
    title: str
    authors: str
    about: str = ""  # what the laptop profile changes, in words
    defaults: PerProfile = Field(default_factory=PerProfile)  # settings of every training
    trainings: dict[Name, TrainingSpec]
    tables: dict[Name, Table]
    claims: dict[Name, Claim]

    def cell(self, path: str) -> Cell:
        """The cell ``table/cell``."""
        table, _, name = path.partition("/")
        if table not in self.tables:
            raise unknown_name(f"table of {self.paper}", table, self.tables)
        if name not in self.tables[table].cells:
            raise unknown_name(f"cell of {self.paper} {table}", name, self.tables[table].cells)
        return self.tables[table].cells[name]


def list_papers() -> list[str]:
    """Names of all papers that have a spec.

    >>> "gu2021" in list_papers()
    True
    """
    found = (entry.name for entry in files("torchcaps.reproduce").joinpath("specs").iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def load_spec(paper: str) -> Spec:
    """The spec of a paper, checked as a whole: every name in it means something."""
    if paper not in list_papers():
        raise unknown_name("paper", paper, list_papers())
    text = files("torchcaps.reproduce").joinpath("specs", f"{paper}.yaml").read_text(encoding="utf-8")
    return read_spec(text)


def read_spec(text: str) -> Spec:
    """A spec from YAML."""
    try:
        spec = Spec.model_validate(yaml.safe_load(text))
    # YAML's own reader lets other errors through from tags that it knows and values that it cannot make.
    except (
        yaml.YAMLError,
        ValidationError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise TorchcapsError(f"this is not a spec: {' '.join(str(error).split())}") from error
    named = [training.matched_to for training in spec.trainings.values()]
    for table in spec.tables.values():
        for cell in table.cells.values():
            named += [cell.training, *cell.others.values()]
    for name in filter(None, named):
        if name not in spec.trainings:
            raise unknown_name(f"training of {spec.paper}", name, spec.trainings)
    for claim in spec.claims.values():
        for comparison in claim.comparisons:
            for term in comparison.terms():
                for path in term:
                    spec.cell(path)
    return spec
