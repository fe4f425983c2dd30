"""Quick robustness tests of a comparison, and the columns of its table.

The tests take seconds per model, enough to see large differences. To add a column, add a :class:`Column`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from torchcaps.analysis.intervals import Interval, mean_interval, paired_interval
from torchcaps.attacks import attacks
from torchcaps.data import datasets
from torchcaps.evaluate import Request, evaluate_robustness
from torchcaps.evaluate.adversarial import default_epsilons
from torchcaps.evaluate.affine import FACTORS, STEPS
from torchcaps.evaluate.clean import reached_target
from torchcaps.evaluate.viewpoint import FAMILIAR
from torchcaps.files import write_json
from torchcaps.train import RunConfig, RunFolder
from torchcaps.train.records import Count, JsonRecord, Share, read_record

AFFINE_IMAGES, ATTACK_IMAGES = 200, 100  # of the test set
ATTACKS = ("fgsm", "bim")
EPSILONS = slice(2, 5)  # of the default ones; larger ones, because attacks that succeed early stop early
SHOWN = 0  # index of the epsilon in the table


class Curve(JsonRecord):
    """Accuracy against the strength of one affine factor."""

    strength: list[Annotated[float, Field(ge=-1000, le=1000)]] = Field(min_length=STEPS, max_length=STEPS)
    accuracy: list[Share] = Field(min_length=STEPS, max_length=STEPS)


class RecordedAffine(JsonRecord):
    about: str
    images: Count
    accuracy: Share
    curves: dict[str, Curve]

    @model_validator(mode="after")
    def check_factors(self) -> Self:
        if set(self.curves) != set(FACTORS):
            raise ValueError(f"the curves must be those of {', '.join(FACTORS)}")
        return self


class RecordedViewpoint(JsonRecord):
    familiar_error: Share


class RecordedOverlap(JsonRecord):
    drawing_error: Annotated[float, Field(ge=0, le=1e6)] | None


class RecordedTests(JsonRecord):
    affnist: RecordedAffine | None = None
    viewpoint: RecordedViewpoint | None = None
    multimnist: RecordedOverlap | None = None


class AttackRow(JsonRecord):
    attack: str
    epsilon: Annotated[float, Field(ge=0, le=1000)]
    accuracy: Share


class RecordedWarning(JsonRecord):
    name: str
    message: str


class RecordedAttack(JsonRecord):
    images: Count
    clean_accuracy: Share
    norm: str
    logits: str
    attacks: list[AttackRow]
    sanity: list[RecordedWarning]

    @model_validator(mode="after")
    def check_attacks(self) -> Self:
        found = {row.attack for row in self.attacks}
        if not set(ATTACKS) <= found or not all(name in attacks for name in found):
            raise ValueError(f"the attacks must be known, and {' and '.join(ATTACKS)} among them")
        return self


class Robustness(JsonRecord):
    """The part of robustness.json that tables and figures read."""

    tests: RecordedTests
    attacked: RecordedAttack | None


def quick_robustness(run: RunFolder) -> dict[str, Any]:
    """Run the robustness tests that suit the run's dataset, or read their result from the run directory."""
    target = run.output("robustness.json")
    if target.is_file():
        return read_record(Robustness, target)
    found: dict[str, Any] = {}
    for request in _requests(run.config()):
        more = evaluate_robustness(run, request)
        earlier = {key: found.get(key, {}) | more[key] for key in ("tests", "refused")}
        found = more | earlier | {"attacked": found.get("attacked") or more["attacked"]}
    write_json(target, found)
    return found


def _requests(config: RunConfig) -> list[Request]:
    """Overlap for pairs of digits; otherwise affine changes, two attacks and, if there are any, novel viewpoints."""
    record = datasets.get(config.data)
    if record.labels_per_image > 1:
        return [Request(on=("multimnist",), images=AFFINE_IMAGES)]
    epsilons = default_epsilons(config.image_shape[0])[EPSILONS]
    requests = [
        Request(on=("affnist",), images=AFFINE_IMAGES),
        Request(attack=ATTACKS, epsilons=epsilons, images=ATTACK_IMAGES),
    ]
    # Models are matched by these values, so they are measured on all images.
    return requests + [Request(on=("viewpoint",), images=None)] * (FAMILIAR in record.splits)


def shown_accuracy(found: dict[str, Any], attack: str) -> float:
    """Return the accuracy under an attack at the epsilon of the table."""
    rows = [row for row in found["attacked"]["attacks"] if row["attack"] == attack]
    return float(rows[SHOWN]["accuracy"])


Results = list[dict[str, Any]]  # of one model, one per seed
SUSPECT_MARK = "⚠"  # marks a value whose sanity checks failed
# Fields of a result file that the table and the figures read.
REQUIRED_FIELDS = (
    "seed", "parameters", "training_seconds", "images_per_second", "validation_accuracy", "test_accuracy",
    "test_images", "confusion", "environment",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str
    show: Callable[[Results], str]
    matched: bool = False  # only comparable if the model reached the target accuracy


def percent(values: Iterable[float]) -> str:
    """Format the mean in percent; after ± half of its 95 % interval over seeds, if there are several."""
    shares = [100 * value for value in values]
    text = f"{statistics.fmean(shares):.2f}"
    return f"{text} ± {mean_interval(shares).half_width:.2f}" if len(shares) > 1 else text


def differences(results: Mapping[str, Results], key: str = "test_accuracy") -> dict[str, Interval]:
    """Return the 95 % interval of each model's difference from the first one, in percentage points, paired by seed.

    Models that missed the target accuracy are left out; with a single seed there are no intervals.
    """
    (_, baseline), *others = results.items()
    if len(baseline) < 2 or not reached_target(baseline):
        return {}
    return {
        name: paired_interval((1, -1), [[100 * result[key] for result in runs] for runs in (each, baseline)])
        for name, each in others
        if reached_target(each)
    }


def difference_sentences(results: Mapping[str, Results]) -> list[str]:
    """Say for each model whether it is better than the first one, and by how much."""
    first, seeds = next(iter(results)), len(next(iter(results.values())))
    if len(results) < 2:
        return []
    if seeds < 2:
        return ["One seed does not tell which model is better: use --seeds 3 or more."]
    sentences = []
    for name, found in differences(results).items():
        verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "no difference can be told"
        sentences.append(
            f"{name} minus {first}: {found.center:+.2f} ± {found.half_width:.2f} percentage points of test accuracy, "
            f"{verdict}."
        )
    return [*sentences, f"± is half of a 95 % interval over {seeds} seeds; differences are paired by seed."]


def best_model(results: Mapping[str, Results]) -> str | None:
    """Return the model that is better than every other on validation images; None if that cannot be told."""
    for name, own in results.items():
        others = {other: each for other, each in results.items() if other != name}
        found = differences({name: own} | others, "validation_accuracy")
        if others and len(found) == len(others) and all(each.high < 0 for each in found.values()):
            return name
    return None


def robustness_columns(results: Sequence[Results]) -> list[Column]:
    """Return the robustness columns for which any model has results."""
    found = [result.get("robustness") for each in results for result in each]
    tests = {name for each in found if each for name in each["tests"]}
    attacked = [each["attacked"] for each in found if each and each["attacked"]]
    chosen = []
    if "viewpoint" in tests:  # the test images are the novel viewpoints
        show = _where("viewpoint", lambda r: percent(1 - t["familiar_error"] for t in r))
        chosen.append(Column("familiar views, %", show, matched=True))
    if "affnist" in tests:
        chosen.append(Column("affine, %", _where("affnist", lambda r: percent(t["accuracy"] for t in r)), matched=True))
    if "multimnist" in tests:
        chosen.append(Column("digit error", _where("multimnist", _drawing_error), matched=True))
    for name in ATTACKS if attacked else ():
        epsilon = attacked[0]["attacks"][SHOWN]["epsilon"]
        chosen.append(Column(f"{name} {epsilon:.2g}, %", _under(name), matched=True))
    return chosen


def table_cells(chosen: Sequence[Column], results: Results) -> list[str]:
    """Return a model's row. Some values are left out if it missed the target accuracy."""
    matched = reached_target(results)
    return [column.show(results) if matched or not column.matched else "not matched" for column in chosen]


def _mean(results: Results, key: str) -> float:
    return statistics.fmean(result[key] for result in results)


def _where(test: str, show: Callable[[Results], str]) -> Callable[[Results], str]:
    """Show a value of one of the tests; empty for a run to which the test does not apply."""

    def shown(results: Results) -> str:
        found = [result["robustness"]["tests"].get(test) for result in results if result.get("robustness")]
        return show(found) if found and all(found) else ""

    return shown


def _drawing_error(tests: Results) -> str:
    errors = [test["drawing_error"] for test in tests]
    return f"{statistics.fmean(errors):.4f}" if None not in errors else ""


def _under(attack: str) -> Callable[[Results], str]:
    def shown(results: Results) -> str:
        found = [result["robustness"] for result in results if result.get("robustness")]
        if not found or not all(each["attacked"] for each in found):
            return ""
        mark = f" {SUSPECT_MARK}" if any(each["attacked"]["sanity"] for each in found) else ""
        return percent(shown_accuracy(each, attack) for each in found) + mark

    return shown


COLUMNS = (
    Column("parameters", lambda results: f"{results[0]['parameters']:,}"),
    Column("training, s", lambda results: f"{_mean(results, 'training_seconds'):.1f}"),
    Column("images/s", lambda results: f"{_mean(results, 'images_per_second'):,.0f}"),
    Column("validation, %", lambda results: percent(result["validation_accuracy"] for result in results)),
    Column("test, %", lambda results: percent(result["test_accuracy"] for result in results), matched=True),
)
