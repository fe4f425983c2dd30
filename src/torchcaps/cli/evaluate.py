"""torchcaps evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete, complete_list, complete_run
from torchcaps.cli.options import AsJson, Plugin
from torchcaps.errors import TorchcapsError


# MERGED torchcaps explain
# MERGED torchcaps predict
# MERGED torchcaps export
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
    from torchcaps.evaluate import Request, evaluate_robustness, save_evaluation

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
        written = save_evaluation(out, evaluations)
    else:
        pairs = zip(targets, evaluations, strict=True)
        written = [path for target, each in pairs for path in save_evaluation(target, [each])]
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
    from torchcaps.evaluate.report import notes, summary_table

    columns, rows = summary_table(evaluations)
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


def explain(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    image: Annotated[
        str | None, typer.Argument(help="A picture file, or the number of a test image.  [default: one of each class]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.  [default: RUN/explain]")] = None,
    only: Annotated[str | None, typer.Option(help="Names behind commas, such as 'couplings,votes'.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Take test images of this dataset.  [default: the run's]", autocompletion=complete("dataset")
        ),
    ] = None,
    decoder: Annotated[Path | None, typer.Option(help="Also draw with the decoder of this run.")] = None,
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option(help="Print what explain.json has.")] = False,
) -> None:
    """Look into a trained model: what its capsules hold, which places voted, what it found out about itself."""
    from torchcaps.analysis.explain import explain as explain_model
    from torchcaps.data import load_dataset
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
        only=[name.strip() for name in only.split(",")] if only else (),
        other=load(decoder) if decoder else None,
        title=title,
        run=str(run),
    )
    if json:
        console.print_json(report)
        return
    rows = [
        (file, each["finding"] if number == 0 else "")
        for each in report["explanations"].values()
        for number, file in enumerate(each["files"])
    ]
    rows += [(f"{name}: left out", reason) for name, reason in report["skipped"].items()]
    console.print_table(title, ("file", "finding"), rows)
    console.out.print(f"Page: {folder / 'index.html'}")


LINES = 40  # pictures in the table: a longer one is for --csv


def predict(
    run: Annotated[
        str,
        typer.Argument(help="Folder of a trained run, or a name of 'torchcaps weights'.", autocompletion=complete_run),
    ],
    pictures: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    top: Annotated[int, typer.Option(help="How many classes to show for each picture.", min=1)] = 3,
    csv: Annotated[Path | None, typer.Option(help="Also write all probabilities into this file.")] = None,
    least_sure: Annotated[
        Path, typer.Option(help="Of several pictures, draw those with the least sure answers into this PNG file.")
    ] = Path("least-sure.png"),
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Say what is on pictures, with the probability of each class; a broken file is named and the rest goes on."""
    from torchcaps.prediction import draw_least_sure, write_csv
    from torchcaps.prediction import predict as ask
    from torchcaps.pretrained.loading import load_trained

    model = load_trained(run).model
    found = ask(model, pictures)
    for problem in found.broken.values():
        console.warn(problem)
    drawn = draw_least_sure(model, found, least_sure) if len(found.answers) > 1 else 0
    if csv:
        write_csv(found, csv)
    if json:
        console.print_json(found.as_json())
        return
    count = min(top, len(found.class_names))
    rows = [
        (str(each.path), *(f"{name}: {share:.1%}" for name, share in found.top(each, count)))
        for each in found.answers[:LINES]
    ]
    places = ("answer", "second", "third", *(f"{place}th" for place in range(4, count + 1)))[:count]
    console.print_table(run, ("picture", *places), rows)
    if len(found.answers) > LINES:
        console.out.print(f"and {len(found.answers) - LINES} more: --csv FILE or --json gives all of them")
    if drawn:
        console.out.print(f"The {drawn} least sure: {least_sure}", soft_wrap=True)
    if csv:
        console.out.print(f"All probabilities: {csv}", soft_wrap=True)


def export(
    source: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or a name of 'torchcaps weights'.")],
    to: Annotated[str, typer.Option(help="'onnx', or 'torch' for torch.export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file.  [default: model.onnx in the run, or the weights' name here]")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Write a trained model as a file for other programs, checked against PyTorch."""
    from torchcaps.export import export_model

    written = export_model(source, out, to=to)
    console.out.print(f"Written: {written.path}", soft_wrap=True)
    taken = written.details["preprocessing"]
    console.out.print(
        f"Its scores differ by at most {written.difference:.0e} from PyTorch's. It takes {taken}.", soft_wrap=True
    )
