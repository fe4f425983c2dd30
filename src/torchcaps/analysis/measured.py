"""Explanations that are measured over a set: compactness, alignment, entropy of couplings, dead capsules.

Each raises a TorchcapsError with the reason where a model or dataset is not of its kind.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchcaps.analysis.alignment import measure_alignment
from torchcaps.analysis.charts import alignment_chart, compactness_chart, entropy_chart, liveliness_chart
from torchcaps.analysis.compactness import measure_compactness
from torchcaps.analysis.couplings import coupling_entropy
from torchcaps.analysis.dead import measure_liveliness
from torchcaps.analysis.explanation import Explanation, Material
from torchcaps.analysis.inspection import inspect_layers
from torchcaps.progress import progress_bar


def explain_compactness(material: Material) -> Explanation:
    """In how few dimensions each of six changes of an image shows."""
    sample = material.sample
    with progress_bar("compactness", 6 * len(sample.images)) as advance:
        data = measure_compactness(material.model, sample.images, sample.labels, advance=advance)
    words = ", ".join(f"{name} {each['score'] or 0:.3f}" for name, each in data["factors"].items())
    return Explanation(
        f"{words} (of at most {data['greatest']:.2f})",
        "How few dimensions of the true class's capsule answer to a change of the image: 0 if all do alike, the dashed "
        "line if one alone does. The text of gu2021 averages the scores of images (left bars); its table 5 (grey) has "
        "the size of another reading, which averages the dimensions' shares over the images first (right bars).",
        data,
        {"compactness": compactness_chart(data)},
    )


def explain_alignment(material: Material) -> Explanation:
    """Whether stronger changes of an image move its capsule along one line."""
    sample = material.sample
    with progress_bar("alignment", 6 * len(sample.images)) as advance:
        data = measure_alignment(material.model, sample.images, sample.labels, advance=advance)
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


def explain_entropy(material: Material) -> Explanation:
    """How decided the couplings of every layer are, iteration by iteration."""
    _, layers = inspect_layers(material.model, material.shown.images)
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


def explain_dead(material: Material) -> Explanation:
    """Capsule types that no image brings to life."""
    images = material.sample.images
    with progress_bar("dead capsules", len(images)) as advance:
        layers = measure_liveliness(material.model, images, advance=advance)
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
        {"dead": liveliness_chart(layers)},
    )
