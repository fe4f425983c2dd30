"""Explanations that one looks at: moved dimensions, another decoder's drawings, places that voted, vote distances.

Each raises a TorchcapsError with the reason where a model or dataset is not of its kind.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from matplotlib.figure import Figure

from torchcaps.analysis.alignment import measure_alignment
from torchcaps.analysis.compactness import measure_compactness
from torchcaps.analysis.couplings import (
    class_share,
    coupling_entropy,
    is_normalized_over_parents,
    measure_activity,
    vote_maps,
)
from torchcaps.analysis.explanation import ExplainInput, Explanation
from torchcaps.analysis.figures import (
    activity_chart,
    alignment_chart,
    compactness_chart,
    entropy_chart,
    image_sheet,
    map_sheet,
    vote_chart,
)
from torchcaps.analysis.inspection import inspect_layers
from torchcaps.analysis.perturbation import (
    RANGES,
    PerturbationRange,
    perturb_dimensions,
    ranges_for,
    reconstruct_with,
    reconstruction_change,
)
from torchcaps.analysis.receptive_field import grid_extents
from torchcaps.analysis.votes import vote_histograms
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

# MERGED Explanations that are measured over a set: compactness, alignment, entropy of couplings, dead c
RUNNERS_UP = 3  # classes whose votes are shown when there is one image only
HISTOGRAM_IMAGES = 3


def explain_perturbation(inputs: ExplainInput) -> Explanation:
    """Moved dimensions, in the range of each paper that fits the model."""
    data: dict[str, Any] = {}
    figures = {}
    for paper in ranges_for(inputs.model):
        data[paper], figures[f"perturbation-{paper}"] = perturbation_sheet(inputs, RANGES[paper], f"range of {paper}")
    words = [f"{each['strongest_change']:.3f} ({paper})" for paper, each in data.items()]
    return Explanation(
        f"the strongest dimension changes a pixel, end to end, by {', '.join(words)}",
        "Drawings while one number of the winning capsule is moved: all dimensions of one image, or of an image of "
        "each class the dimension that changes its drawing most.",
        data,
        figures,
    )


def perturbation_sheet(
    inputs: ExplainInput, extent: PerturbationRange, title: str = "range"
) -> tuple[dict[str, Any], Figure]:
    """Drawings with a dimension moved over a range: all dimensions of one image, or the strongest of each image.

    With the picture comes, for each image, how much each dimension changes its drawing.
    """
    model, shown = inputs.model, inputs.shown
    drawn = [perturb_dimensions(model, image, paper=extent) for image in shown.images]
    changes = torch.stack([reconstruction_change(each) for each in drawn])  # (K, D)
    reach, steps = extent.arguments(changes.shape[1])
    moves = [round(move, 6) for move in torch.linspace(-reach, reach, steps).tolist()]
    best = changes.argmax(1).tolist()
    if len(drawn) == 1:
        images, rows = drawn[0], [f"dim {number}" for number in range(changes.shape[1])]
    else:
        moved = torch.stack([each[number] for each, number in zip(drawn, best, strict=True)])
        images = torch.cat([shown.images.unsqueeze(1), moved], 1)
        rows = [f"{name}: dim {number}" for name, number in zip(shown.names, best, strict=True)]
    columns = ["image"] * (images.shape[1] - steps) + [f"{move:+.2g}" if move else "0" for move in moves]
    by_image = zip(shown.names, changes.tolist(), strict=True)
    data = {
        "moves": moves,
        "change": [{"image": name, "by_dimension": change} for name, change in by_image],
        "strongest": int(changes.mean(0).argmax()),
        "strongest_change": float(changes.mean(0).max()),
    }
    return data, image_sheet(images, rows, columns, f"{title}: {-reach:.3g} to {reach:.3g}")


def explain_decoding(inputs: ExplainInput) -> Explanation:
    """Drawings by the decoder of another model, beside the model's own."""
    model, other, images = inputs.model, inputs.other, inputs.shown.images
    if other is None:
        raise TorchcapsError("no second model with a decoder was given (on the command line: --decoder RUN)")
    drawn = {"image": images, "other decoder": reconstruct_with(other, model, images)}
    if drawn["other decoder"].shape != images.shape:
        raise TorchcapsError(
            f"the other decoder draws images {other.image_shape}, and these are {model.image_shape}: choose a model "
            "for images of the same size"
        )
    with torch.no_grad():
        drawn["other model"] = other.reconstruct(other(images))
        if model.decoder is not None:
            drawn["own decoder"] = model.reconstruct(model(images))
    errors = {name: float((each - images).square().mean()) for name, each in drawn.items() if name != "image"}
    sheet = image_sheet(torch.stack(list(drawn.values())), list(drawn), inputs.shown.names)
    return Explanation(
        ", ".join(f"{name}: {error:.4f}" for name, error in errors.items()) + " (mean squared error of a pixel)",
        "Images; the capsules of this run drawn by the decoder of the other one; the other run's own capsules drawn by "
        "its decoder; and, where this run has a decoder, its own drawing.",
        {"mean_squared_error": errors},
        {"decoding": sheet},
    )


def explain_couplings(inputs: ExplainInput) -> Explanation:
    """Which places voted for the class that won, iteration by iteration; for one image, also for the runners-up."""
    images, names = inputs.shown.images, inputs.class_names
    single = len(images) == 1
    if single:
        images = images.expand(min(RUNNERS_UP, len(names)), -1, -1, -1)
    output, layers = inspect_layers(inputs.model, images)
    ranked = output.scores.argsort(1, descending=True)
    classes = ranked.diagonal() if single else ranked[:, 0]
    count = max(len(layer.couplings) for layer in layers)
    maps = [vote_maps(layers, classes, iteration) for iteration in range(count)]  # [iteration][layer] (K, H, W)
    frames = grid_extents(inputs.model, layers)
    columns = [f"iteration {number + 1}" for number in range(count)] if count > 1 else ["couplings"]
    # The lowest layer in every iteration, then the last iteration as the layers above have it.
    shown = [each[0] for each in maps] + maps[-1][1:]
    columns += [f"below layer {number + 1}" for number in range(1, len(layers))]
    arrays = [[each[row].numpy() for each in shown] for row in range(len(images))]
    rows = [f"{names[int(label)]}\n{output.scores[row, label]:.2f}" for row, label in enumerate(classes)]
    frames = [frames[0]] * count + frames[1:]
    winners = 1 if single else len(images)  # the first rows; the runners-up take no part in what is said
    half = [_places_for_half(each[0][:winners]) for each in maps]
    finding = f"half of the votes for the class come from {_arrows(half)} of the places"
    gained = [float(class_share(layers, classes, iteration)[:winners].mean()) for iteration in range(count)]
    if all(is_normalized_over_parents(layer) for layer in layers):
        finding = f"the class gets {_arrows(gained)} of what is present; {finding}"
    return Explanation(
        finding,
        "Where the votes for a class come from: each place's capsules, weighted by how present they are and by the "
        "couplings that lead from them up to the class, whose name and score stand on the left. The colours of a "
        "row, or of all rows of one image, run from the smallest value to the greatest; red and blue are positive and "
        "negative couplings, where a routing has both.",
        {
            "classes": [names[int(label)] for label in classes],
            "places_for_half": half,
            "share_of_present": gained,
            "maps": [[_rounded(layer) for layer in iteration] for iteration in maps],
            "layers": [layer.name for layer in layers],
        },
        {"couplings": map_sheet(images, rows, columns, arrays, frames, one_scale=single)},
    )


def explain_votes(inputs: ExplainInput) -> Explanation:
    """Histograms of vote distances per iteration of EM routing, zoomed and with a logarithm."""
    images, names = inputs.shown.images[:HISTOGRAM_IMAGES], inputs.shown.names
    data = vote_histograms(inputs.model, images)
    figures = {}
    for number, scores in enumerate(data["scores"]):
        for kind in ("zoomed", "whole"):
            histograms = {"edges": data[kind]["edges"], "weights": data[kind]["weights"][number]}
            chart = vote_chart(histograms, scores, inputs.class_names, log=kind == "whole")
            figures[f"votes-{number}-{kind}"] = chart
    words = " -> ".join(f"{distance:.2f}" for distance in data["mean_distance"])
    return Explanation(
        f"mean distance of a vote to the class capsule it is assigned to: {words}",
        f"How far votes lie from each class capsule's mean, after each iteration, for {', '.join(names[: len(images)])}"
        ": first zoomed in on the nearer half, then all of them with a logarithm. Red is the class that won.",
        data,
        figures,
    )


def _places_for_half(maps: torch.Tensor) -> float:
    """The share of places that hold half of the votes, mean over the images: (K, H, W)."""
    ordered = maps.abs().flatten(1).sort(1, descending=True).values.cumsum(1)
    needed = (ordered < ordered[:, -1:] / 2).sum(1) + 1
    return float((needed / ordered.shape[1]).mean())


def _arrows(shares: list[float]) -> str:
    return " -> ".join(f"{share:.1%}" for share in shares)


def _rounded(values: torch.Tensor) -> Any:
    return (values * 1e5).round().div(1e5).tolist()


def explain_compactness(inputs: ExplainInput) -> Explanation:
    """In how few dimensions each of six changes of an image shows."""
    sample = inputs.sample
    with progress_bar("compactness", 6 * len(sample.images)) as advance:
        data = measure_compactness(inputs.model, sample.images, sample.labels, advance=advance)
    words = ", ".join(f"{name} {each['score'] or 0:.3f}" for name, each in data["factors"].items())
    return Explanation(
        f"{words} (of at most {data['greatest']:.2f})",
        "How few dimensions of the true class's capsule answer to a change of the image: 0 if all do alike, the dashed "
        "line if one alone does. The text of gu2021 averages the scores of images (left bars); its table 5 (grey) has "
        "the size of another reading, which averages the dimensions' shares over the images first (right bars).",
        data,
        {"compactness": compactness_chart(data)},
    )


def explain_alignment(inputs: ExplainInput) -> Explanation:
    """Whether stronger changes of an image move its capsule along one line."""
    sample = inputs.sample
    with progress_bar("alignment", 6 * len(sample.images)) as advance:
        data = measure_alignment(inputs.model, sample.images, sample.labels, advance=advance)
    ratios = [each["mean"] or 0.0 for signs in data["ratio"].values() for each in signs.values()]
    own, paper = data["random"]["own_size"], data["random"]["paper_size"]
    return Explanation(
        f"mean ratio {sum(ratios) / len(ratios):.3f}; five random vectors in {own['size']}-D {own['mean']:.3f}, in "
        f"{paper['size']}-D {paper['mean']:.3f} where choi2019 prints {data['paper']['random']['mean']}",
        "Left: how well the moves of a capsule under stronger and stronger changes lie on one line, 1 if exactly, with "
        "what random vectors give. Right: whether a change and its opposite move the capsule to opposite sides (-1) or "
        "to the same one (1).",
        data,
        {"alignment": alignment_chart(data)},
    )


def explain_entropy(inputs: ExplainInput) -> Explanation:
    """How decided the couplings of every layer are, iteration by iteration."""
    _, layers = inspect_layers(inputs.model, inputs.shown.images)
    data: dict[str, Any] = {layer.name: [asdict(each) for each in coupling_entropy(layer)] for layer in layers}
    words = [
        f"{name} "
        + " -> ".join("none" if each["relative"] is None else f"{each['relative']:.3f}" for each in entropies)
        for name, entropies in data.items()
    ]
    return Explanation(
        "; ".join(words) + " of the greatest possible",
        "Entropy of the couplings, over the images shown: 1 if all get equal shares, 0 if one takes all.",
        data,
        {"entropy": entropy_chart(data)},
    )


def explain_dead(inputs: ExplainInput) -> Explanation:
    """Capsule types that no image brings to life."""
    images = inputs.sample.images
    with progress_bar("dead capsules", len(images)) as advance:
        layers = measure_activity(inputs.model, images, advance=advance)
    data = {
        layer.name: {
            "types": len(layer.first),
            "silent": layer.silent,
            "never_first": layer.never_first,
            "greatest": layer.greatest.tolist(),
            "first": layer.first.tolist(),
        }
        for layer in layers
    }
    words = [f"{each.name} {len(each.silent)} silent, {len(each.never_first)} never first" for each in layers]
    return Explanation(
        f"{'; '.join(words)} (of {', '.join(str(len(each.first)) for each in layers)} types, {len(images)} images)",
        "For each capsule type, bars: at what share of places and images it is the most present one; marks: its "
        "greatest presence. Red numbers are types that never reach a hundredth of the layer's greatest presence, or "
        "are nowhere the most present one.",
        data,
        {"dead": activity_chart(layers)},
    )
