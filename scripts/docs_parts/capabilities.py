"""Tables of what there is, from the registries: models, routings, losses, attacks, datasets; and equations."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from importlib import import_module
from types import ModuleType

from docs_parts.marks import table
from torchcaps.attacks import attacks
from torchcaps.data import datasets
from torchcaps.losses import losses
from torchcaps.models.registry import LAYER, ModelRow, model_rows, models, routing_rows
from torchcaps.pretrained import list_pretrained
from torchcaps.routing import routings

YES = {True: "yes", False: ""}


@cache
def counted_models() -> list[ModelRow]:
    """All models with their parameters, counted once for all pages."""
    return model_rows()


def model_table(*names: str) -> str:
    """Models by name, or all of them."""
    rows = [
        [
            f"`{row.name}`",
            row.paper,
            row.description + (f" (needs {row.needs})" if row.needs else ""),
            YES[models.get(row.name).capsules],
            models.get(row.name).recipe.loss,
            row.image,
            f"{row.paper_parameters:,}",
            f"{row.laptop_parameters:,}",
        ]
        for row in counted_models()
        if not names or row.name in names
    ]
    head = ["name", "paper", "what it is", "capsules", "loss", "image", "parameters, paper size", "laptop size"]
    return table(head, rows, numbers=3)


def routing_table() -> str:
    """All routings with what they need and give."""
    rows = [
        [
            f"`{row.name}`",
            row.paper,
            row.description,
            YES[record.iterative],
            YES[record.build(LAYER).gives_activation],
            row.needs,
            f"{row.parameters:,}",
            str(lines_of_code(import_module(getattr(record.build, "func", record.build).__module__))),
        ]
        for row in routing_rows()
        for record in [routings.get(row.name)]
    ]
    head = ["name", "paper", "what it is", "iterates", "gives activations", "needs", "own parameters", "lines of code"]
    return table(head, rows, numbers=2)


def lines_of_code(module: ModuleType) -> int:
    """Number of lines in the file of a module, without docstrings, comments and blank lines."""
    source = inspect.getsource(module)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for n, line in lines if n not in docstrings)


def loss_table() -> str:
    rows = [[f"`{record.name}`", record.description, YES[not record.single_label]] for record in losses]
    return table(["name", "what it is", "for two labels in an image"], rows)


def attack_table() -> str:
    rows = [
        [
            f"`{record.name}`",
            record.paper,
            record.description,
            ", ".join(record.norms),
            "gradients" if record.white_box else "scores only",
            ", ".join(
                filter(
                    None,
                    [
                        "another run" * record.needs_source,
                        f"`pip install -e '.[{record.extra}]'`" if record.extra else "",
                    ],
                )
            ),
        ]
        for record in attacks
    ]
    return table(["name", "paper", "what it is", "norms", "sees", "needs"], rows)


def dataset_table() -> str:
    rows = [
        [
            f"`{record.name}`",
            record.description,
            " + ".join(f"{count:,}" for count in record.splits.values()),
            "x".join(map(str, record.shape)),
            str(len(record.class_names)),
            record.licence,
            "put in place by hand" if record.by_hand else "fetched" if record.files else "generated",
        ]
        for record in datasets
    ]
    return table(["name", "what it is", "images", "shape", "classes", "licence", "comes"], rows)


def weights_table() -> str:
    """The networks that come with the package."""
    rows = [
        [f"`{card.model}`", f"`{card.tag}`", card.data, f"{100 * card.test_accuracy:.2f}", f"{card.test_images:,}"]
        for card in list_pretrained()
    ]
    return table(["model", "`pretrained=`", "trained on", "test accuracy, %", "test images"], rows, numbers=2)


def equation(place: str) -> str:
    """The equation in a docstring, which is its only place: ``routing.em``, or ``losses:spread_loss``."""
    module, _, name = place.partition(":")
    found: object = import_module(f"torchcaps.{module}")
    if name:
        found = getattr(found, name)
    text = inspect.cleandoc(found.__doc__ or "")
    block = re.search(r"^\.\. math::[ \n](.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    if block is None:
        raise SystemExit(f"torchcaps.{place} has no equation in its docstring")
    tex = textwrap.dedent(block[1]).strip()
    if "&" in tex:
        tex = f"\\begin{{aligned}}\n{tex}\n\\end{{aligned}}"
    return f"```math\n{tex}\n```"


MAKERS = {
    "models": model_table,
    "routings": routing_table,
    "losses": loss_table,
    "attacks": attack_table,
    "datasets": dataset_table,
    "weights": weights_table,
    "equation": equation,
}
