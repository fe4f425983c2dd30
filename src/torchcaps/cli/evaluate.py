"""torchcaps evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete_list
from torchcaps.cli.settings import AsJson, Plugin
from torchcaps.errors import TorchcapsError


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.")],
    on: Annotated[
        str | None, typer.Option(help="Tests of robustness behind commas: affnist, multimnist, acgan, viewpoint.")
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Attacks behind commas, such as 'fgsm,bim,pgd,autoattack,square'.",
            autocompletion=complete_list("attack"),
        ),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Sizes of perturbations in [0, 1] behind commas.  [default: the usual ones]")
    ] = None,
    norm: Annotated[str, typer.Option(help="What bounds a perturbation: 'linf' or 'l2'.")] = "linf",
    images: Annotated[int, typer.Option(help="Use only so many images of each test set.", min=1)] = 500,
    logits: Annotated[
        str, typer.Option(help="What attacks see: 'strongest', 'logits', 'log-odds', 'atanh' or 'scores'.")
    ] = "strongest",
    source: Annotated[
        Path | None, typer.Option(help="A run on which 'transfer' makes its images, and whose gradient is compared.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the robustness of all runs.  [default: RUN/evaluation for each]")
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Test trained models on images that took no part in training or selection; or how robust they are."""
    from torchcaps.train import open_run

    folders = [open_run(path) for path in runs]
    if not on and not attack:
        if epsilon or source or out:
            raise TorchcapsError("--epsilon, --source and --out are about robustness: name tests by --on or --attack")
        _evaluate_clean(runs, json)
        return
    from torchcaps.evaluate import Request, evaluate_robustness, write_evaluation

    request = Request(
        on=_names(on),
        attack=_names(attack),
        epsilons=_numbers(epsilon) if epsilon else None,
        norm=norm,
        images=images,
        logits=logits,
        source=source,
    )
    targets = [out or run.output("evaluation") for run in folders]  # refused before anything is computed
    evaluations = []
    for run in folders:
        console.err.print(f"{run.path}")
        evaluations.append(evaluate_robustness(run, request))
    if not any(each["tests"] or each["attacked"] for each in evaluations):
        raise TorchcapsError(next(iter(evaluations[0]["refused"].values())))
    if out:
        written = write_evaluation(out, evaluations)
    else:
        pairs = zip(targets, evaluations, strict=True)
        written = [path for target, each in pairs for path in write_evaluation(target, [each])]
    if json:
        console.print_json(evaluations)
        return
    _print(evaluations, norm)
    for path in written:
        console.out.print(f"Written: {path}", soft_wrap=True)


def _evaluate_clean(runs: list[Path], json: bool) -> None:
    from torchcaps.evaluate import evaluate_run
    from torchcaps.train import open_run

    results = [evaluate_run(open_run(path)) for path in runs]
    if json:
        console.print_json(results)
        return
    rows = [
        (
            str(path),
            result["model"],
            result["data"],
            f"{result['validation_accuracy']:.2%}",
            f"{result['test_accuracy']:.2%}",
        )
        for path, result in zip(runs, results, strict=True)
    ]
    console.print_table("Evaluation", ("run", "model", "data", "validation", "test"), rows, numbers=2)


def _print(evaluations: list[dict[str, Any]], norm: str) -> None:
    from torchcaps.evaluate.summary import notes, summary

    columns, rows = summary(evaluations)
    attacked = any(each["attacked"] for each in evaluations)
    title = f"Robustness: accuracy in %{f', by epsilon ({norm})' if attacked else ''}"
    console.print_table(title, columns, rows)
    for note in notes(evaluations):
        console.out.print(note, soft_wrap=True)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise TorchcapsError(f"--epsilon should be numbers behind commas, such as 0.1,0.3, got '{text}'") from error
