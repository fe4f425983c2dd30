"""torchcaps evaluate, explain, predict and export: commands for trained runs"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, complete, complete_list, complete_run, split_names
from torchcaps.errors import TorchcapsError


def evaluate_command(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    on: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated list of robustness tests: affnist, affnist-45, affnist-official, multimnist, acgan, "
            "viewpoint."
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated list of attacks, e.g. 'fgsm,bim,pgd,autoattack,square'.",
            autocompletion=complete_list("attack"),
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(help="Comma-separated list of perturbation sizes in [0, 1].  [default: standard values]"),
    ] = None,
    norm: Annotated[str, typer.Option(help="Norm of the perturbation, 'linf' or 'l2'.")] = "linf",
    images: Annotated[int, typer.Option(help="Number of images of each test set.", min=1)] = 500,
    logits: Annotated[
        str, typer.Option(help="Logits that attacks use: 'strongest', 'logits', 'log-odds', 'atanh' or 'scores'.")
    ] = "strongest",
    source: Annotated[
        Path | None, typer.Option(help="Source run for the 'transfer' attack and for comparing gradients.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results of all runs.  [default: RUN/evaluation for each run]")
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Measure test accuracy, or robustness with --on and --attack."""
    from torchcaps.train import open_run

    folders = [open_run(path) for path in runs]
    if not on and not attack:
        if epsilon or source or out:
            raise TorchcapsError("--epsilon, --source and --out apply to robustness tests: also pass --on or --attack")
        _evaluate_clean(runs, json)
        return
    from torchcaps.evaluate import Request, evaluate_robustness, save_evaluation

    request = Request(
        on=tuple(split_names(on)),
        attack=tuple(split_names(attack)),
        epsilons=_numbers(epsilon) if epsilon else None,
        norm=norm,
        images=images,
        logits=logits,
        source=source,
    )
    targets = [
        out or run.output("evaluation") for run in folders
    ]  # a directory that cannot be used is refused before anything is computed
    evaluations = []
    for run in folders:
        console.err.print(f"{run.path}")
        evaluations.append(evaluate_robustness(run, request))
    if not any(each["tests"] or each["attacked"] for each in evaluations):
        raise TorchcapsError(next(iter(evaluations[0]["refused"].values())))
    if out:
        written = save_evaluation(out, evaluations)
    else:
        pairs = zip(targets, evaluations, strict=True)
        written = [path for target, each in pairs for path in save_evaluation(target, [each])]
    if json:
        console.print_json(evaluations)
        return
    _print_robustness(evaluations, norm)
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


def _print_robustness(evaluations: list[dict[str, Any]], norm: str) -> None:
    from torchcaps.evaluate.report import notes, summary_table

    columns, rows = summary_table(evaluations)
    attacked = any(each["attacked"] for each in evaluations)
    title = f"Robustness: accuracy in %{f', by epsilon ({norm})' if attacked else ''}"
    console.print_table(title, columns, rows)
    for note in notes(evaluations):
        console.out.print(note, soft_wrap=True)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise TorchcapsError(
            f"--epsilon should be a comma-separated list of numbers, such as 0.1,0.3, got '{text}'"
        ) from error


def explain_command(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    image: Annotated[
        str | None, typer.Argument(help="Image file, or index of a test image.  [default: one image per class]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output directory.  [default: RUN/explain]")] = None,
    only: Annotated[
        str | None, typer.Option(help="Comma-separated list of explanations, e.g. 'couplings,votes'.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Use test images of this dataset.  [default: the run's]", autocompletion=complete("dataset")),
    ] = None,
    decoder: Annotated[Path | None, typer.Option(help="Also reconstruct with the decoder of this run.")] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Visualize capsules, couplings and votes of a trained model."""
    from torchcaps.analysis.explain import explain as explain_model
    from torchcaps.data import load_dataset
    from torchcaps.models import models
    from torchcaps.train import load, open_run

    opened = open_run(run)
    folder = out or opened.output("explain")
    config = opened.config()
    if data is None:
        opened.check_dataset()
    title = f"{config.model} on {data or config.data}"
    report = explain_model(
        load(run),
        load_dataset(data or config.data, "test"),
        folder,
        picture=image,
        only=split_names(only),
        other=load(decoder) if decoder else None,
        title=title,
        run=str(run),
        paper=models.get(config.model).paper,
    )
    if json:
        console.print_json(report)
        return
    for each in report["predictions"]:
        true = "" if each["true_label"] is None else f"; true label: {each['true_label']}"
        share = next(iter(each["probabilities"].values()))
        console.out.print(f"{each['image']}: {each['prediction']} ({share:.1%}){true}", soft_wrap=True)
    rows = [
        (file, each["finding"] if number == 0 else "")
        for each in report["explanations"].values()
        for number, file in enumerate(each["files"])
    ]
    rows += [(f"{name}: skipped", reason) for name, reason in report["skipped"].items()]
    console.print_table(title, ("file", "finding"), rows)
    console.out.print(f"Page: {folder / 'index.html'}")


MOST_ROWS = 40  # in the printed table; --csv has all


def predict_command(
    run: Annotated[
        str,
        typer.Argument(help="Run directory, or a name from 'torchcaps weights'.", autocompletion=complete_run),
    ],
    pictures: Annotated[Path, typer.Argument(help="Image file, or folder of images.")],
    top: Annotated[int, typer.Option(help="Number of classes to show per image.", min=1)] = 3,
    csv: Annotated[Path | None, typer.Option(help="Also write all probabilities to this CSV file.")] = None,
    least_sure: Annotated[
        Path, typer.Option(help="PNG file for the least confident predictions, if there are several images.")
    ] = Path("least-sure.png"),
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Classify image files and print probabilities.

    Files that cannot be read are reported and skipped.
    """
    from torchcaps.prediction import draw_least_confident, predict, write_csv
    from torchcaps.pretrained.loading import load_trained

    model = load_trained(run).model
    found = predict(model, pictures)
    for problem in found.broken.values():
        console.warn(problem)
    drawn = draw_least_confident(model, found, least_sure) if len(found.answers) > 1 else 0
    if csv:
        write_csv(found, csv)
    if json:
        console.print_json(found.as_json())
        return
    count = min(top, len(found.class_names))
    rows = [
        (str(each.path), *(f"{name}: {share:.1%}" for name, share in found.top(each, count)))
        for each in found.answers[:MOST_ROWS]
    ]
    ranks = ("prediction", "second", "third", *(f"{rank}th" for rank in range(4, count + 1)))[:count]
    console.print_table(run, ("image", *ranks), rows)
    if len(found.answers) > MOST_ROWS:
        console.out.print(f"... and {len(found.answers) - MOST_ROWS} more; use --csv FILE or --json to get all.")
    if drawn:
        console.out.print(f"Least confident predictions ({drawn}): {least_sure}", soft_wrap=True)
    if csv:
        console.out.print(f"All probabilities: {csv}", soft_wrap=True)


def export_command(
    source: Annotated[str, typer.Argument(metavar="RUN", help="Run directory, or a name from 'torchcaps weights'.")],
    to: Annotated[str, typer.Option(help="Format: 'onnx', or 'torch' for torch.export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="Output file.  [default: model.onnx in the run directory, or NAME.onnx here]")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Export a trained model to ONNX or torch.export."""
    from torchcaps.export import export_model

    written = export_model(source, out, to=to)
    console.out.print(f"Written: {written.path}", soft_wrap=True)
    expected = written.details["preprocessing"]
    console.out.print(
        f"Largest difference from PyTorch's answers: {written.difference:.0e}. Input: {expected}.", soft_wrap=True
    )
