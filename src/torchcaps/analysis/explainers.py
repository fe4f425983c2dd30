"""Explainers: each turns a model and some images into data, figures and a finding in one sentence.

An explainer raises a TorchcapsError with the reason if it does not apply to the model or the dataset.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from torchcaps.analysis.couplings import (
    class_share,
    coupling_entropy,
    is_normalized_over_parents,
    measure_activity,
    vote_histograms,
    vote_maps,
)
from torchcaps.analysis.dynamics import describe_dynamics, measure_dynamics
from torchcaps.analysis.explanation import ExplainInput, Explanation
from torchcaps.analysis.figures import (
    activity_chart,
    alignment_chart,
    compactness_chart,
    dynamics_chart,
    entropy_chart,
    image_sheet,
    map_sheet,
    vote_chart,
)
from torchcaps.analysis.inspection import grid_extents, inspect_layers
from torchcaps.analysis.perturbation import (
    RANGES,
    PerturbationRange,
    default_range,
    perturb_dimensions,
    reconstruct_with,
    reconstruction_change,
)
from torchcaps.analysis.sweeps import measure_alignment, measure_compactness
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP_CLASSES = 3  # classes whose votes are shown if there is only one image
HISTOGRAM_IMAGES = 3


def explain_perturbation(inputs: ExplainInput) -> Explanation:
    """Perturb the dimensions of the winning capsule, over the range of the model's paper."""
    name = default_range(inputs.model, inputs.paper)
    data, figure = perturbation_sheet(inputs, RANGES[name], f"range of {name}")
    return Explanation(
        f"mean pixel change over the range of the strongest dimension: {data['strongest_change']:.3f}",
        "Reconstructions with one dimension of the winning capsule perturbed: all dimensions for a single image, "
        "otherwise the dimension with the strongest effect for an image of each class.",
        data | {"range": name},
        {"perturbation": figure},
    )


def perturbation_sheet(
    inputs: ExplainInput, extent: PerturbationRange, title: str = "range"
) -> tuple[dict[str, Any], Figure]:
    """Reconstruct with a dimension perturbed over a range: all dimensions of one image, or the strongest of each image.

    Returns the effect of each dimension on each image, and the figure.
    """
    model, shown = inputs.model, inputs.shown
    drawn = [perturb_dimensions(model, image, paper=extent) for image in shown.images]
    changes = torch.stack([reconstruction_change(each) for each in drawn])  # (K, D)
    reach, steps = extent.for_size(changes.shape[1])
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
    """Reconstruct the capsules with the decoder of another model, beside the model's own."""
    model, other, images = inputs.model, inputs.other, inputs.shown.images
    if other is None:
        raise TorchcapsError("no second model with a decoder was given (on the command line: --decoder RUN)")
    drawn = {"image": images, "other decoder": reconstruct_with(other, model, images)}
    if drawn["other decoder"].shape != images.shape:
        raise TorchcapsError(
            f"the other decoder reconstructs images {other.image_shape}, but these are {model.image_shape}: choose a "
            "model with the same image size"
        )
    with torch.no_grad():
        drawn["other model"] = other.reconstruct(other(images))
        if model.decoder is not None:
            drawn["own decoder"] = model.reconstruct(model(images))
    errors = {name: float((each - images).square().mean()) for name, each in drawn.items() if name != "image"}
    sheet = image_sheet(torch.stack(list(drawn.values())), list(drawn), inputs.shown.names)
    return Explanation(
        ", ".join(f"{name}: {error:.4f}" for name, error in errors.items()) + " (mean squared error per pixel)",
        "From top to bottom: images; this run's capsules reconstructed by the other run's decoder; the other run's own "
        "reconstruction; and, if this run has a decoder, its own reconstruction.",
        {"mean_squared_error": errors},
        {"decoding": sheet},
    )


def explain_couplings(inputs: ExplainInput) -> Explanation:
    """Map the votes for the predicted class per iteration; for a single image, also those for the next classes."""
    images, names = inputs.shown.images, inputs.class_names
    single = len(images) == 1
    if single:
        images = images.expand(min(TOP_CLASSES, len(names)), -1, -1, -1)
    output, layers = inspect_layers(inputs.model, images)
    ranked = output.scores.argsort(1, descending=True)
    classes = ranked.diagonal() if single else ranked[:, 0]
    count = max(len(layer.couplings) for layer in layers)
    maps = [vote_maps(layers, classes, iteration) for iteration in range(count)]  # [iteration][layer] (K, H, W)
    extents = grid_extents(inputs.model, layers)
    columns = [f"iteration {number + 1}" for number in range(count)] if count > 1 else ["couplings"]
    # The lowest layer in every iteration, then the last iteration of the layers above.
    shown = [each[0] for each in maps] + maps[-1][1:]
    columns += [f"below layer {number + 1}" for number in range(1, len(layers))]
    arrays = [[each[row].numpy() for each in shown] for row in range(len(images))]
    rows = [f"{names[int(label)]}\n{output.scores[row, label]:.2f}" for row, label in enumerate(classes)]
    extents = [extents[0]] * count + extents[1:]
    winners = 1 if single else len(images)  # rows that the finding is about
    half = [_positions_for_half(each[0][:winners]) for each in maps]
    finding = f"half of the votes for the class come from {_arrows(half)} of the positions"
    gained = [float(class_share(layers, classes, iteration)[:winners].mean()) for iteration in range(count)]
    if all(is_normalized_over_parents(layer) for layer in layers):
        finding = f"{_arrows(gained)} of the total presence reaches the class; {finding}"
    return Explanation(
        finding,
        "Where the votes for a class come from: the capsules at each position, weighted by their presence and by the "
        "couplings that lead from them to the class. The class and its score are on the left. Colors span the range "
        "of values of a row, or of all rows for a single image. If a routing has couplings of both signs, positive "
        "ones are red and negative ones blue.",
        {
            "classes": [names[int(label)] for label in classes],
            "places_for_half": half,
            "share_of_present": gained,
            "maps": [[_rounded(layer) for layer in iteration] for iteration in maps],
            "layers": [layer.name for layer in layers],
        },
        {"couplings": map_sheet(images, rows, columns, arrays, extents, one_scale=single)},
    )


def explain_votes(inputs: ExplainInput) -> Explanation:
    """Show histograms of vote distances per iteration of EM routing, zoomed and on a log scale."""
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
        f"mean distance between a vote and the class capsule it is assigned to: {words}",
        f"Distances between the votes and the mean of each class capsule per iteration, for "
        f"{', '.join(names[: len(images)])}: first zoomed in on the nearest half, then all of them on a log scale. The "
        "predicted class is red.",
        data,
        figures,
    )


def _positions_for_half(maps: torch.Tensor) -> float:
    """Return the smallest share of positions with half of the votes, averaged over maps (K, H, W)."""
    ordered = maps.abs().flatten(1).sort(1, descending=True).values.cumsum(1)
    needed = (ordered < ordered[:, -1:] / 2).sum(1) + 1
    return float((needed / ordered.shape[1]).mean())


def _arrows(shares: list[float]) -> str:
    return " -> ".join(f"{share:.1%}" for share in shares)


def _rounded(values: torch.Tensor) -> Any:
    return (values * 1e5).round().div(1e5).tolist()


def explain_compactness(inputs: ExplainInput) -> Explanation:
    """Measure in how few dimensions each of six changes of an image shows."""
    sample = inputs.sample
    with progress_bar("compactness", 6 * len(sample.images)) as advance:
        data = measure_compactness(inputs.model, sample.images, sample.labels, advance=advance)
    words = ", ".join(f"{name} {each['score'] or 0:.3f}" for name, each in data["factors"].items())
    return Explanation(
        f"{words} (maximum {data['greatest']:.2f})",
        "How few dimensions of the true class's capsule respond to a change of the image: 0 if all respond equally, "
        "the dashed line if a single one does. The text of gu2021 averages the scores of the images (left bars). The "
        "values of its table 5 (gray) are in the range of another reading, which averages the shares of the dimensions "
        "over the images first (right bars).",
        data,
        {"compactness": compactness_chart(data)},
    )


def explain_alignment(inputs: ExplainInput) -> Explanation:
    """Measure whether stronger changes of an image move its capsule along one line."""
    sample = inputs.sample
    with progress_bar("alignment", 6 * len(sample.images)) as advance:
        data = measure_alignment(inputs.model, sample.images, sample.labels, advance=advance)
    ratios = [each["mean"] or 0.0 for signs in data["ratio"].values() for each in signs.values()]
    own, paper = data["random"]["own_size"], data["random"]["paper_size"]
    return Explanation(
        f"mean ratio {sum(ratios) / len(ratios):.3f}; random vectors in {own['size']}-D {own['mean']:.3f}, in "
        f"{paper['size']}-D {paper['mean']:.3f} where choi2019 reports {data['paper']['random']['mean']}",
        "Left: how well the displacements of a capsule under stronger and stronger changes lie on one line (1 if "
        "exactly), with the values of random vectors. Right: cosine between the directions of a change and of its "
        "opposite: -1 if the capsule moves in opposite directions, 1 if it moves in the same one.",
        data,
        {"alignment": alignment_chart(data)},
    )


def explain_entropy(inputs: ExplainInput) -> Explanation:
    """Measure how concentrated the couplings of every layer are, per iteration."""
    _, layers = inspect_layers(inputs.model, inputs.shown.images)
    data: dict[str, Any] = {layer.name: [asdict(each) for each in coupling_entropy(layer)] for layer in layers}
    words = [
        f"{name} "
        + " -> ".join("none" if each["relative"] is None else f"{each['relative']:.3f}" for each in entropies)
        for name, entropies in data.items()
    ]
    return Explanation(
        "; ".join(words) + " of the maximum",
        "Relative entropy of the couplings, averaged over the images shown: 1 if all are equal, 0 if one takes all.",
        data,
        {"entropy": entropy_chart(data)},
    )


def explain_dynamics(inputs: ExplainInput) -> Explanation:
    """Measure how many parents are starved, and how much of the couplings is the same for every image."""
    images = inputs.sample.images
    with progress_bar("dynamics", len(images)) as advance:
        layers = measure_dynamics(inputs.model, images, advance=advance)
    return Explanation(
        describe_dynamics(layers),
        "Starved: share of the parents that receive less than a tenth of the mean coupling, over all images. Static: "
        "share of the variance of the couplings that is the same for every image; a routing that parses images has "
        "neither. Moved: mean change of a coupling from the first to the last iteration.",
        {each.name: asdict(each) for each in layers},
        {"dynamics": dynamics_chart(layers)},
    )


def explain_dead_capsules(inputs: ExplainInput) -> Explanation:
    """Find capsule types that are inactive on all images."""
    images = inputs.sample.images
    with progress_bar("dead capsules", len(images)) as advance:
        layers = measure_activity(inputs.model, images, advance=advance)
    data = {
        layer.name: {
            "types": len(layer.win_share),
            "silent": layer.inactive,
            "never_first": layer.never_highest,
            "greatest": layer.max_presence.tolist(),
            "first": layer.win_share.tolist(),
        }
        for layer in layers
    }
    words = [f"{each.name} {len(each.inactive)} inactive, {len(each.never_highest)} never highest" for each in layers]
    return Explanation(
        f"{'; '.join(words)} (of {', '.join(str(len(each.win_share)) for each in layers)} types, {len(images)} images)",
        "For each capsule type, the bar is the share of positions and images at which it has the highest presence of "
        "all types, and the mark is its maximum presence. Types with red numbers never reach 1 % of the layer's "
        "maximum, or never have the highest presence.",
        data,
        {"dead": activity_chart(layers)},
    )
