"""Paper specs: the trainings, tables, figures and claims of a paper as data, one YAML file per paper.

A training is the configuration of a run, with changes per profile. A cell is one number of a table or one part of a
figure: which training it needs, which measure is applied, and the value that the paper published. A claim is an
ordering or a difference that the paper states. No result is ever computed from a published value; it only sets how
good a network must be before its results can decide a claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import parse_yaml
from torchcaps.reproduce.conditions import Competence, Condition, check_conditions
from torchcaps.reproduce.measures import measures

Profile = Literal["laptop", "desk", "paper"]
PROFILES: tuple[Profile, ...] = ("laptop", "desk", "paper")
SMOKE: Profile = "laptop"  # shows that an experiment runs; its networks are rarely competent
DEFAULT_SEEDS: dict[Profile, int] = {"laptop": 3, "desk": 3, "paper": 5}
CLEAN = ("test-accuracy", "test-error")  # the default competence condition is on a cell with one of these measures
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # becomes part of a file name


class SpecModel(BaseModel):
    """Base of everything in a spec: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PerProfile(SpecModel):
    """Settings for each profile."""

    laptop: dict[str, Any] = Field(default_factory=dict)
    desk: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, Any] = Field(default_factory=dict)

    def of(self, profile: Profile) -> dict[str, Any]:
        """Return the settings of one profile."""
        found: dict[str, Any] = getattr(self, profile)
        return found


class TrainingSpec(PerProfile):
    """Settings of a run (see RunConfig, without ``seed``), with changes per profile.

    ``size`` is that of the profile unless the settings name one: ``paper`` in profile paper, otherwise ``laptop``.

    ``matched_to`` names a training; this one stops when it reaches that one's accuracy on familiar viewpoints
    (hinton2018, Table 2).
    """

    settings: dict[str, Any]
    matched_to: str | None = None
    competence: Competence | None = None  # None: the default condition, see Spec.condition


class Cell(SpecModel):
    """One number of a table, or one part of a figure.

    A cell without a measure is cited by the paper from elsewhere: it is printed, but never measured.
    """

    row: str
    column: str
    training: str | None = None  # name in Spec.trainings; some measures need none
    others: dict[str, str] = Field(default_factory=dict)  # further trainings that the measure needs, by role
    members: int = Field(default=1, ge=1, le=100)  # networks of an ensemble, which differ by their seeds
    measure: str | None = None  # name in the registry of measures
    settings: dict[str, Any] = Field(default_factory=dict, alias="with")  # arguments of the measure
    published: float | None = None  # in the unit of the measure
    profiles: tuple[Profile, ...] = PROFILES  # profiles in which the cell can be measured
    competence: Competence | None = None  # replaces the conditions of its trainings
    note: str = ""

    @property
    def all_trainings(self) -> list[str]:
        """The names of all trainings that the measure needs."""
        return [*filter(None, [self.training]), *self.others.values()]

    def error(self, value: float) -> float:
        """Return a value of this cell, an accuracy or error in %, as an error."""
        return 100 - value if str(self.measure).endswith("-accuracy") else value


class Table(SpecModel):
    """A table or figure of a paper."""

    title: str
    kind: Literal["table", "figure"] = "table"
    about: str = ""  # how it is measured here, where the title does not say it
    seeds: dict[Profile, int] = DEFAULT_SEEDS
    settings: PerProfile = Field(default_factory=PerProfile, alias="with")  # for all measures; a cell's own win
    cells: dict[Name, Cell]

    @field_validator("seeds")
    @classmethod
    def fill_seeds(cls, given: dict[Profile, int]) -> dict[Profile, int]:
        """Use the default number in profiles that are not given."""
        return DEFAULT_SEEDS | given


def _factor_and_cell(text: str) -> tuple[float, str]:
    """Parse ``table/cell`` or ``0.75 * table/cell``."""
    number, times, path = text.rpartition("*")
    try:
        factor = float(number) if times else 1.0
    except ValueError:
        factor = math.nan
    if not (0 < factor < math.inf and (path.strip() or not times)):
        raise ValueError(f"a term is table/cell, or a positive number, '*' and table/cell; got '{text}'")
    return factor, path.strip()


class ClaimComparison(SpecModel):
    """An inequality between measured cells: ``greater: [a, b]``, ``above: [a, 1.5]`` or ``below: [a, 1.5]``.

    A term is ``table/cell`` or a difference ``table/cell - table/cell``; a cell may have a factor:
    ``0.75 * table/cell``.
    """

    greater: tuple[str, str] | None = None
    above: tuple[str, float] | None = None
    below: tuple[str, float] | None = None

    @model_validator(mode="after")
    def check_factors(self) -> Self:
        self.weighted_terms()
        return self

    def terms(self) -> list[list[str]]:
        """Return the cells of each term: one cell, or two of which the second is subtracted."""
        return [[path for _, path in term] for term in self.weighted_terms()]

    def weighted_terms(self) -> list[list[tuple[float, str]]]:
        """Return the cells of each term with their factors, which are usually 1."""
        texts = self.greater or [(self.above or self.below or ("", 0.0))[0]]
        return [[_factor_and_cell(part) for part in text.split(" - ")] for text in texts]


Topic = Literal["affine", "overlap", "viewpoints", "attacks", "routing", "capsules", "accuracy", "cost"]
TOPICS: tuple[Topic, ...] = get_args(Topic)


class Claim(SpecModel):
    """A statement of the paper; it holds if all its comparisons hold.

    Claims of all papers on one topic are summarized together in docs/learned.md.
    """

    statement: str
    topic: Topic | None = None
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

    def paths(self) -> Iterator[tuple[str, Cell]]:
        """Yield every cell with its path ``table/cell``."""
        for table, found in self.tables.items():
            for name, cell in found.cells.items():
                yield f"{table}/{name}", cell

    def condition(self, training: str, profile: Profile) -> Condition | None:
        """Return the competence condition of a training, with its cell; None if there is none in this profile.

        Without a cell in the spec, it is on the first cell that measures the training's clean accuracy or error and
        has a published value.
        """
        given = self.trainings[training].competence
        condition = given.of(profile) if given else Condition()
        if condition.exempt:
            return condition
        if condition.cell:
            return condition if profile in self.cell(condition.cell).profiles else None
        for path, cell in self.paths():
            published = cell.published is not None or condition.error_at_most or condition.as_good_as
            if cell.training == training and cell.measure in CLEAN and published and profile in cell.profiles:
                return condition.model_copy(update={"cell": path})
        return None

    def conditions(self, path: str, profile: Profile) -> dict[str, Condition | None]:
        """Return the competence conditions of a cell: that of each of its trainings, or its own with the name ''.

        A measure that presupposes no accuracy has none.
        """
        cell = self.cell(path)
        if cell.competence:
            return {"": cell.competence.of(profile)}
        record = measures.get(cell.measure) if cell.measure and cell.measure in measures else None
        if record and not record.trained:
            return {"": Condition(exempt=f"{cell.measure} does not presuppose accuracy")}
        return {training: self.condition(training, profile) for training in cell.all_trainings}

    def without_condition(self, profile: Profile) -> list[str]:
        """Return the trainings that a claim uses in this profile and that have no competence condition."""
        found = [
            training
            for claim in self.claims.values()
            for comparison in claim.comparisons
            for term in comparison.terms()
            for path in term
            if profile in self.cell(path).profiles
            for training, condition in self.conditions(path, profile).items()
            if condition is None
        ]
        return list(dict.fromkeys(found))


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
    trainings += [name for _, cell in spec.paths() for name in cell.all_trainings]
    for name in filter(None, trainings):
        if name not in spec.trainings:
            raise unknown_name(f"training of {spec.paper}", name, spec.trainings)
    for claim in spec.claims.values():
        for comparison in claim.comparisons:
            for term in comparison.terms():
                for path in term:
                    spec.cell(path)
    for profile in PROFILES:
        check_conditions(spec, profile, source)
    return spec
