"""Competence conditions of a spec: their fields, and checks that each can be examined.

competence.py examines them on results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.reproduce.spec import Profile, Spec


class Condition(BaseModel):
    """How good a network must be before a cell measured on it can decide a claim.

    The mean error of ``cell`` over seeds must be at most ``error_at_most``, or at most 1.5 times the mean error of the
    cell ``as_good_as`` plus 0.5 points; with neither, at most 1.5 times the published error plus 0.5 points.
    ``exempt`` gives the reason why there is no condition.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cell: str | None = None  # table/cell, an accuracy or error in %
    error_at_most: float | None = Field(default=None, ge=0, le=100)  # in %
    as_good_as: str | None = None  # table/cell
    exempt: str | None = Field(default=None, min_length=1)
    why: str = ""

    @model_validator(mode="after")
    def check_criterion(self) -> Self:
        given = [name for name in ("error_at_most", "as_good_as", "exempt") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a competence condition has one of error_at_most, as_good_as and exempt, got {given}")
        if given and given != ["exempt"] and not self.why.strip():
            raise ValueError(f"a competence condition with {given[0]} needs a sentence 'why'")
        return self


class Competence(Condition):
    """A condition, with replacements for single profiles; a replacement keeps ``cell`` unless it names another."""

    laptop: Condition | None = None
    desk: Condition | None = None
    paper: Condition | None = None

    def of(self, profile: Profile) -> Condition:
        """Return the condition in one profile."""
        own: Condition | None = getattr(self, profile)
        if own is None:
            return self
        return own if own.cell else own.model_copy(update={"cell": self.cell})


def check_conditions(spec: Spec, profile: Profile, source: str) -> None:
    """Check that every condition of a profile can be examined, and that every training of a claim has one."""
    stated = {f"training {name}": spec.condition(name, profile) for name in spec.trainings}
    for path, cell in spec.paths():
        if cell.competence:
            stated[f"cell {path}"] = cell.competence.of(profile)
    for name, condition in stated.items():
        if condition is not None and not condition.exempt:
            _check_condition(spec, name, condition, f"{source}: competence of {name} in profile {profile}")
    for name in spec.trainings:
        _check_references(spec, name, profile, source)
    for training in spec.without_condition(profile):
        raise TorchcapsError(
            f"{source}: a claim uses training {training}, which has no competence condition in profile {profile}: "
            "add a cell with its test accuracy or error and the published value, or 'competence' to the training"
        )


def _check_condition(spec: Spec, name: str, condition: Condition, where: str) -> None:
    """Raise an error if the cells of a condition cannot decide it; ``name`` is the training or cell that it is on."""
    if condition.cell is None:
        raise TorchcapsError(f"{where} names no cell: write 'cell: table/name', or 'exempt: reason'")
    for path in filter(None, [condition.cell, condition.as_good_as]):
        if not str(spec.cell(path).measure).endswith(("-accuracy", "-error")):
            raise TorchcapsError(f"{where}: {path} is not an accuracy or error: name a cell that measures one")
    own = spec.cell(condition.cell)
    if name.startswith("training ") and own.training != name.removeprefix("training "):
        raise TorchcapsError(f"{where}: {condition.cell} measures training {own.training}: name one of its own")
    if own.published is None and condition.error_at_most is None and condition.as_good_as is None:
        raise TorchcapsError(
            f"{where}: {condition.cell} has no published value: give error_at_most or as_good_as, and why"
        )


def _check_references(spec: Spec, training: str, profile: Profile, source: str) -> None:
    """Follow ``as_good_as`` from a training: the reference must have a condition that does not lead back to it."""
    seen = [training]
    while True:
        condition = spec.condition(seen[-1], profile)
        if condition is None or condition.as_good_as is None:
            return
        reference = spec.cell(condition.as_good_as).training
        if reference is None or reference in seen:
            raise TorchcapsError(
                f"{source}: competence of training {training} in profile {profile} leads back to itself "
                f"({' -> '.join([*seen, str(reference)])}): give one of them error_at_most"
            )
        seen.append(reference)
