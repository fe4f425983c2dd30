"""torchcaps evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, complete_list, complete_run, split_names
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.train import RunFolder


def evaluate_command(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run directories, or names from 'torchcaps weights'.", autocompletion=complete_run),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated list of robustness tests: affnist, affnist-45, affnist-official, multimnist, acgan, "
            "viewpoint, corruptions, rotation-translation."
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
    images: Annotated[
        str | None,
        typer.Option(
            help="A folder of labeled images to evaluate on: one subfolder per class, or a CSV file. With --on, "
            "--attack or --detect: the new place of the images that the run was trained on."
        ),
    ] = None,
    test_images: Annotated[int, typer.Option(help="Images of each test set of --on and --attack.", min=1)] = 500,
    logits: Annotated[
        str, typer.Option(help="Logits that attacks use: 'strongest', 'logits', 'log-odds', 'atanh' or 'scores'.")
    ] = "strongest",
    source: Annotated[
        Path | None,
        typer.Option(
            help="Source run for the 'transfer' attack and for comparing gradients; with --detect, the plain network "
            "whose confidence is the baseline."
        ),
    ] = None,
    detect: Annotated[
        bool,
        typer.Option(
            "--detect",
            help="Measure how well reconstruction tells test images from other data, noise and adversarial images.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results of all runs.  [default: RUN/evaluation for each run]")
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Measure test accuracy, or robustness with --on and --attack.

    With --images FOLDER: accuracy, precision and recall of each class, calibration, and the worst mistakes on your own
    labeled images.
    """
    from torchcaps.pretrained.loading import open_trained, output_folder

    folders = [open_trained(name) for name in runs]
    if images and (on or attack or detect):
        from torchcaps.train import move_images

        folders = [move_images(run, _image_folder(images)) for run in folders]
    elif images:
        if epsilon or source:
            raise TorchcapsError("--epsilon and --source need --attack or --detect: name one, or leave them out")
        _evaluate_folders(folders, _image_folder(images), out, json)
        return
    if detect:
        if on or attack:
            raise TorchcapsError("--detect is a measurement of its own: leave out --on and --attack")
        sizes = _numbers(epsilon) if epsilon else (None,)
        _detect(folders, sizes[0], source, test_images, out, json)
        return
    if not on and not attack:
        if epsilon or source or out:
            raise TorchcapsError("--epsilon, --source and --out apply to robustness tests: also pass --on or --attack")
        _evaluate_clean(folders, json)
        return
    from torchcaps.evaluate import Request, evaluate_robustness, save_evaluation

    request = Request(
        on=tuple(split_names(on)),
        attack=tuple(split_names(attack)),
        epsilons=_numbers(epsilon) if epsilon else None,
        norm=norm,
        images=test_images,
        logits=logits,
        source=source,
    )
    targets = [
        out or output_folder(run, "evaluation") for run in folders
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


def _evaluate_clean(runs: list[RunFolder], json: bool) -> None:
    from torchcaps.data.datasets.image_folder import display_name
    from torchcaps.evaluate import evaluate_run
    from torchcaps.evaluate.clean import evaluate_weights
    from torchcaps.pretrained.loading import ROOT

    results = [evaluate_weights(run) if run.path.parent == ROOT else evaluate_run(run) for run in runs]
    if json:
        console.print_json(results)
        return
    rows = [
        (
            run.path.name if run.path.parent == ROOT else str(run.path),
            result["model"],
            display_name(result["data"]),
            f"{result['validation_accuracy']:.2%}" if "validation_accuracy" in result else "",
            f"{result['test_accuracy']:.2%}",
        )
        for run, result in zip(runs, results, strict=True)
    ]
    console.print_table("Evaluation", ("run", "model", "data", "validation", "test"), rows, numbers=2)


def _detect(
    runs: list[RunFolder], epsilon: float | None, source: Path | None, images: int, out: Path | None, json: bool
) -> None:
    from torchcaps.environment import describe_environment
    from torchcaps.evaluate.clean import test_images
    from torchcaps.evaluate.detection import default_sources, measure_detection
    from torchcaps.files import file_name, write_json
    from torchcaps.pretrained.loading import ROOT, open_trained, output_folder
    from torchcaps.train import load

    results = []
    for run in runs:
        config, model = run.config(), load(run.path)
        run.check_dataset()
        found = measure_detection(
            model,
            test_images(config),
            default_sources(config.data, model.image_shape),
            images_used=images,
            epsilon=epsilon,
            baseline=load(open_trained(source).path) if source else None,
        )
        name = run.path.name if run.path.parent == ROOT else str(run.path)
        about = {"run": name, "baseline": str(source) if source else None}
        folder = out / file_name(run.path.name) if out else output_folder(run, "evaluation")
        target = folder / "detection.json"
        write_json(target, about | found | {"environment": describe_environment()})
        results.append(about | found)
        if not json:
            _print_detection(results[-1])
            console.out.print(f"Written: {target}", soft_wrap=True)
    if json:
        console.print_json(results)


def _print_detection(found: dict[str, Any]) -> None:
    def number(value: float | None, form: str = ".3f") -> str:
        return "" if value is None else f"{value:{form}}"

    rows = [
        (
            row["images"],
            number(row["success"], ".1%"),
            number(row["reconstruction"]),
            number(row["confidence"]),
            *([number(row["baseline_confidence"])] if found["baseline"] else []),
            number(row["undetected"], ".1%"),
        )
        for row in found["rows"]
    ]
    columns = ("images", "success", "reconstruction", "confidence", *(["baseline"] if found["baseline"] else []))
    console.print_table("Detection: AUROC, 0.5 is chance", (*columns, "undetected"), rows, numbers=len(columns))
    console.out.print(
        f"{found['test_images']} images of each kind. 'success': images that an attack turns from correct to wrong. "
        f"'undetected': of all images, at {found['false_alarms']:.0%} false alarms. 'confidence': detection by the "
        "model's own largest probability" + (", 'baseline' by that of the source." if found["baseline"] else "."),
        soft_wrap=True,
    )


def _image_folder(images: str) -> Path:
    if images.isdecimal() and not Path(images).exists():
        raise TorchcapsError(f"--images names a folder of images; for a number of images, use --test-images {images}")
    return Path(images)


def _evaluate_folders(runs: list[RunFolder], images: Path, out: Path | None, json: bool) -> None:
    from torchcaps.evaluate import evaluate_folder
    from torchcaps.files import file_name
    from torchcaps.pretrained.loading import output_folder

    several = len(runs) > 1
    results = []
    for run in runs:
        own = out / file_name(run.path.name) if out and several else out
        target = own or output_folder(run, "evaluation")
        result = evaluate_folder(run, images, target)
        results.append(result)
        if not json:
            _print_folder(result, target)
    if json:
        console.print_json(results)


def _print_folder(result: dict[str, Any], target: Path) -> None:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = [
        (row["class"], str(row["images"]), share(row["precision"]), share(row["recall"])) for row in result["classes"]
    ]
    console.print_table(result["run"], ("class", "images", "precision", "recall"), rows, numbers=3)
    note = " (the test images of the folder that it was trained on)" if result["held_out_by_the_run"] else ""
    console.out.print(
        f"Accuracy {result['accuracy']:.2%} on {result['images']:,} images{note}, expected calibration error "
        f"{result['calibration']['expected_calibration_error']:.1%}, {len(result['mistakes'])} mistakes.",
        soft_wrap=True,
    )
    for name in ("images.json", "images.png", *(["mistakes.png"] if result["mistakes"] else [])):
        console.out.print(f"Written: {target / name}", soft_wrap=True)


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
