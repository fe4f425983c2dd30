"""Sections of docs/performance.md on how fast networks learn: images to accuracy, pilots, learning rates and trials."""

from __future__ import annotations

from typing import Any

from docs_parts.marks import table

Result = dict[str, Any]


def learning(result: Result) -> str:
    from torchcaps.bench.learning import CASES, summarize_learning

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}"

    rows = [
        [
            CASES[row["case"]].title,
            row["recipe"],
            f"{row['target']:.1%}",
            f"{row['reached']} of {row['seeds']}",
            figure(row["images"]),
            figure(row["core_seconds"]),
            f"{row['final_accuracy']:.2%}",
            figure(row["final_images"]),
            figure(row["final_core_seconds"]),
        ]
        for row in summarize_learning(result["rows"])
    ]
    words = """Images and core-seconds of training steps until a network of laptop size reaches a test accuracy: means
over the seeds that reach it. The old recipe is the model's default; the new one has a one-cycle schedule and, for
matrix capsules, poses normalized between layers, a clipped gradient and two iterations. Only the
recipe of matrix capsules on MNIST was chosen on validation images: the peaks for smallNORB, CapsNet and ConvNet-Avg
come from exploratory runs judged on test images, those for AR CapsNet and G-CapsNet were not chosen by any trial.
`torchcaps bench learning` repeats the measurement.
"""
    columns = ["case", "recipe", "target", "seeds", "images", "core-seconds"]
    columns += ["accuracy at the end", "images at the end", "core-seconds at the end"]
    return f"{words}\n{table(columns, rows)}\n\n![Test error against training images](images/learning.svg)\n"


def trials(result: Result) -> str:
    rows = []
    for row in result["rows"]:
        last = row["points"][-1] if row["points"] else None
        found = [f"{last['accuracy']:.2%}", f"{last['core_seconds']:.0f}"] if last else ["failed", ""]
        rows.append([row["name"], str(row["seed"]), f"{last['images']:,}" if last else "", *found])
    words = """Short trainings of matrix capsules of laptop size, to choose a recipe. Unless stated otherwise: MNIST
without augmentation in batches of 32, one-cycle schedule with a peak of 0.01 and a tenth of warm-up, floor 0.2,
accuracy on 2,000 validation images. Trials that name neither iterations nor start have two iterations, a start near the
identity and a gradient clipped at 1. Names with "batch 8, floor 1" have a peak of 0.005 unless they name another.
"Convolutions", "transforms" and "vectors" are factors of the learning rate of these weights; "gradient through N" is
`gradient_steps`; "toys" are trainings on smallNORB, evaluated on toys that are not trained on; "average pooling" is the
network of hahn2019 with this head, a peak of 0.003 and batches of 64; "plain counterpart" has the kernels and strides
of matrix capsules with ReLU in place of capsules, about as many parameters unless it has 136 channels, the
cross-entropy and a peak of 0.005: it shows what the shape of the network alone allows. Differences below one
percentage point mean little with one seed. `python -m benchmarks.learning_trials` repeats them.
"""
    return f"{words}\n{table(['trial', 'seed', 'images', 'accuracy', 'core-seconds'], rows)}\n"


def em_gradients(result: Result) -> str:
    rows = [
        [
            str(row["iterations"]),
            row["layer"],
            f"{row['median_norm']:.2g}",
            f"{row['largest_norm']:.2g}",
            f"{row['cosine_with_2']:.2f}",
        ]
        for row in result["rows"]
    ]
    words = """The gradient of the spread loss for different numbers of iterations at the same weights, over 100 batches
of 8 images. The weights are those of a network that was trained for 200 steps with two iterations, so the other
numbers are measured on a network that is not adapted to them. Each further iteration multiplies the gradient, and its
direction is nearly unrelated to that with two iterations. The setting `gradient_steps` of EM routing stops the gradient
before the last iterations. In the trials above this makes a step cheaper. Per image, 3 iterations learn as before with
it, and 5 iterations faster.
`python -m benchmarks.em_gradients` repeats the measurement.
"""
    columns = ["iterations", "weights", "median norm", "largest norm", "cosine with 2 iterations"]
    return f"{words}\n{table(columns, rows)}\n"


def rates(result: Result) -> str:
    def accuracies(row: Result) -> str:
        found = row["validation_accuracy"].items()
        return ", ".join(f"{peak}: {'diverged' if value is None else f'{value:.1%}'}" for peak, value in found)

    rows = [
        [
            row["kind"],
            f"`{row['training']}`",
            "none" if row["suggested"] is None else f"{row['suggested']:g}",
            accuracies(row),
            str(row["steps"]),
            f"{row['peak']:g}",
        ]
        for row in result["rows"]
    ]
    words = """Peaks of a one-cycle schedule for the kinds of training in profile desk: the one that the range test
`torchcaps tune-rate` suggests in 100 steps, and the accuracy on up to 2,000 validation images after short trainings
around it, one seed each. The best peak of a short training is a guide to that of a long one, no more.
`python -m benchmarks.tuned_rates` repeats them.
"""
    columns = ["kind", "training", "suggested", "validation accuracy by peak", "steps", "best peak"]
    return f"{words}\n{table(columns, rows)}\n"


def pilots(result: Result) -> str:
    rows = []
    for row in result["rows"]:
        recipe, last = row["recipe"], row["points"][-1] if row["points"] else None
        found = [f"{last['accuracy']:.2%}", f"{last['images']:,}", f"{last['core_seconds']:,.0f}"] if last else []
        rows.append(
            [
                row["name"],
                f"`{row['training']}`",
                recipe.get("optimizer", "adam"),
                f"`{recipe['schedule']}`",
                str(recipe["batch_size"]),
                *(found or ["failed", "", ""]),
            ]
        )
    words = """Trainings of profile desk that were tried so far, one seed each, evaluated on up to 6,000 validation
images: the accuracy to expect, and its cost. Kinds of training that are not listed have had no pilot.
`python -m benchmarks.pilots` repeats them.
"""
    columns = ["pilot", "training", "optimizer", "schedule", "batch", "validation accuracy", "images", "core-seconds"]
    return f"{words}\n{table(columns, rows)}\n"
