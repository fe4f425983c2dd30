"""A small paper spec with synthetic result files, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps.reproduce.jobs import plan_jobs
from torchcaps.reproduce.results import CellResult, save_result
from torchcaps.reproduce.spec import Spec, parse_spec

TEXT = """
paper: made2020
title: Made-up capsules <b>&
authors: A. Nobody
about: Fewer channels and images.
trainings:
  capsnet: {settings: {model: capsnet, data: mnist}, laptop: {train_images: 2000, epochs: 1}}
  avg: {settings: {model: convnet-avg, data: mnist}, laptop: {train_images: 2000, epochs: 1}}
tables:
  table1:
    title: Accuracy & <i>more</i>
    cells:
      a: {row: "A <script>", column: MNIST, training: capsnet, measure: test-accuracy, published: 99.2}
      b: {row: B, column: MNIST, training: avg, measure: test-accuracy, published: 98.5}
      c: {row: C, column: MNIST, training: avg, measure: test-accuracy}
      cited: {row: Cited, column: MNIST, published: 93.1}
      other: {row: B, column: affNIST, training: avg, measure: affnist-accuracy, published: 94.11, profiles: [paper]}
  fig1:
    title: Attack
    kind: figure
    cells:
      a: {row: A, column: FGSM, training: capsnet, measure: attack-accuracy}
      b: {row: B, column: FGSM, training: avg, measure: attack-accuracy}
      c: {row: A, column: BIM, training: capsnet, measure: attack-accuracy}
claims:
  greater: {statement: A beats B, source: Table 1, all: [{greater: [table1/a, table1/b]}]}
  above: {statement: A is above 90, source: Table 1, all: [{above: [table1/a, 90]}]}
  gap: {statement: A is ahead by less than 2, source: text, all: [{below: [table1/a - table1/b, 2]}]}
  gaps: {statement: A-B more than B-C, source: text, all: [{greater: [table1/a - table1/b, table1/b - table1/c]}]}
  both:
    statement: A over B over C
    source: text
    all: [{greater: [table1/a, table1/b]}, {greater: [table1/b, table1/c]}]
"""
# The same with conditions that any network meets.
LENIENT = TEXT.replace("epochs: 1}}", "epochs: 1}, competence: {error_at_most: 100, why: any network will do}}")
ENVIRONMENT = {
    "command": "torchcaps reproduce made2020",
    "commit": "0123456789abcdef",
    "processor": "a processor",
    "cores": 2,
    "threads": 1,
    "versions": {"torch": "2.13.0", "python": "3.11"},
}


def made_spec() -> Spec:
    return parse_spec(LENIENT)


def write_made(
    folder: Path,
    path: str,
    values: Sequence[float | None],
    *,
    first_seed: int = 0,
    unit: str = "%",
    spec: Spec | None = None,
    **more: Any,
) -> list[Path]:
    """Result files of one cell, one for each seed, with the fingerprint that the spec asks for."""
    spec = spec or made_spec()
    table, name = path.split("/")
    profile = more.pop("profile", "laptop")
    job = plan_jobs(spec, profile, tables=[table], cells=[name], seeds=1)[0]
    files = []
    for seed, value in enumerate(values, first_seed):
        result = CellResult(
            **{
                "paper": spec.paper,
                "table": table,
                "cell": name,
                "profile": profile,
                "seed": seed,
                "measure": job.measure,
                "unit": unit,
                "value": value,
                "published": job.cell.published,
                "fingerprint": job.fingerprint(),
                "training": job.training.config.model_dump(mode="json") if job.training else None,
                "training_seconds": 90.0,
                "selection_split": "validation",
                "environment": ENVIRONMENT,
                **more,
            }
        )
        target = folder / spec.paper / table / f"{name}-{profile}-seed{seed}.json"
        save_result(target, result)
        files.append(target)
    return files
