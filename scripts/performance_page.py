"""Write docs/performance.md and its picture from the result files: python scripts/performance_page.py

A section stands for each file that is there; a test holds the page to the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs_parts.marks import table

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "results" / "bench"
PICTURE = ROOT / "docs" / "images" / "growth.svg"
Result = dict[str, Any]

INTRODUCTION = """# Performance

This page is made by `scripts/performance_page.py` from the files in `results/bench/`; `make bench` measures anew, and
`torchcaps bench` gives a first impression in a minute. What is compared runs interleaved in one process, warm; figures
are medians, and ratios are medians of the ratios of single rounds. No GPU was there to measure on.
"""
FORMS = """`torchcaps`: as it comes, with all fast forms. `plain`: the plain definition in PyTorch, under the same tuned
allocator. `compiled`: `torch.compile` of it. `straightforward`: as public code usually writes it, with W repeated for
every image, logits of the size of the votes, whole temporaries in EM and a Python loop over pairs of capsule types.
`convolutions`: the network's convolutions in PyTorch, and nothing else.
"""


def machine(result: Result) -> str:
    """What a result was measured on, as a line."""
    found = result["environment"]
    versions = found["versions"]
    return f"Measured on: {found['processor']}, {found['cores']} cores, torch {versions['torch']}.\n"


def claims(result: Result) -> str:
    verdicts = {True: "yes", False: "**no**", None: ""}
    rows = []
    for check in result["checks"]:
        measured = "" if check["measured"] is None else f"{check['measured']:.3g}"
        if spread := check.get("spread"):
            measured += f" ({spread['lower_quartile']:.3g} to {spread['upper_quartile']:.3g})"
        rows.append([check["what"], measured, check["target"], verdicts[check["met"]], check.get("note", "")])
    divided = result["batches_divided_by"]
    warning = "" if divided == 1 else f"All batches were divided by {divided}: these figures count for nothing.\n\n"
    words = "In brackets: between these lie half of the rounds.\n"
    return f"{warning}{table(['what', 'measured', 'target', 'met', 'note'], rows)}\n\n{words}"


def forms_in(result: Result, measured: str) -> list[str]:
    """The forms that were measured, ours first."""
    order = ["torchcaps", "plain", "compiled", "straightforward", "convolutions"]
    return [form for form in order if any(form in row[measured] for row in result["rows"])]


def steps(result: Result) -> str:
    forms = forms_in(result, "seconds")
    parts = [FORMS]
    for task in ("training", "inference"):
        rows = [
            [
                f"{row['model']}, {row['size']}",
                str(row["batch"]),
                str(row["threads"]),
                *(f"{1000 * row['seconds'][form]['median']:.1f}" if form in row["seconds"] else "" for form in forms),
            ]
            for row in result["rows"]
            if row["task"] == task
        ]
        title = "Training step" if task == "training" else "Inference"
        parts.append(f"{title}, milliseconds:\n\n{table(['model', 'batch', 'threads', *forms], rows)}\n")
    return "\n".join(parts)


def memory(result: Result) -> str:
    forms = forms_in(result, "bytes")

    def cell(row: Result, form: str) -> str:
        sizes = row["bytes"].get(form)
        return "" if sizes is None else f"{sizes['activations'] / 1e6:.1f} / {sizes['peak'] / 1e6:.1f}"

    rows = [
        [f"{row['model']}, {row['size']}", str(row["batch"]), *(cell(row, form) for form in forms)]
        for row in result["rows"]
    ]
    words = """What a training step needs beyond weights and moments, each in a fresh process on one thread, in MB: what
the forward pass keeps for the backward pass, and the peak.
"""
    return f"{words}\n{table(['model', 'batch', *forms], rows)}\n"


def growth(result: Result) -> str:
    rows = [
        [
            model,
            title,
            form,
            f"{axis['values'][0]} to {axis['values'][-1]}",
            f"{axis['seconds'][form]['exponent']:.2f}",
            f"{alone[form]['exponent']:.2f}" if alone else "",
            *(f"{axis['bytes'][form]['exponents'][kind]:.2f}" for kind in ("activations", "peak")),
        ]
        for model, axes in result["models"].items()
        for title, axis in axes.items()
        for alone in [axis.get("seconds, routing alone")]
        for form in axis["seconds"]
    ]
    words = """Time and memory of a training step on one thread, as powers of what grows: 1 is linear, 2 quadratic, 0
not at all. Images grow in both directions, so 2 is linear in pixels.
"""
    columns = ["model", "grows with", "form", "from", "time", "time, routing alone", "activations", "peak"]
    return f"{words}\n{table(columns, rows)}\n\n![Time and memory against what grows](images/growth.svg)\n"


def allocator(result: Result) -> str:
    rows = [
        [name, f"{1000 * job['plain_seconds']:.1f}", f"{1000 * job['tuned_seconds']:.1f}", f"{job['ratio']:.2f}"]
        for name, job in result["jobs"].items()
    ]
    words = """glibc hands large blocks back to the system at every free, and the next tensor of that size pays for
fresh pages. The `torchcaps` command raises the thresholds, so that freed memory stays in the process; in a Python
program, `torchcaps.tune_process()` does the same, best called before `import torch`. `import torchcaps` alone changes
nothing, and `TORCHCAPS_MALLOC=0` leaves the allocator as the system has it. Processes with and without took turns:
"""
    return f"{words}\n{table(['job', 'as it comes, ms', 'tuned, ms', 'ratio'], rows)}\n"


def data(result: Result) -> str:
    rows = [
        [row["what"], row["unit"], f"{row['measured']:,}", f"{row['by the clock']:,}", f"{row['target']:,}"]
        for row in result["rows"]
    ]
    return f"On one core:\n\n{table(['what', 'unit', 'measured', 'by the clock', 'target'], rows)}\n"


def convolutions(result: Result) -> str:
    modes = ("training", "attack", "inference")
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for row in result["rows"]:
        text = f"{row['ratio']:.2f}"
        cells.setdefault((row["layer"], row["batch"]), {})[row["mode"]] = f"**{text}**" if row["ratio"] < 1 else text
    rows = [[layer, str(batch), *(found[mode] for mode in modes)] for (layer, batch), found in cells.items()]
    words = """Time of a convolution through Fourier transforms as a share of PyTorch's, on one thread; below 1 it wins.
Training is forward and backward, attack is forward and the gradient of the images, inference forward alone with
the kernels' spectrum kept. A model measures its own layers once and takes the Fourier form where it is clearly faster;
`torchcaps doctor` shows which. 3x3 kernels, maps above 32 pixels at stride 2 or 16 at stride 1, fewer than 16
channels and fewer than 8 images always take PyTorch's.
"""
    return f"{words}\n{table(['layer', 'batch', *modes], rows)}\n"


# Each result file: the title of its section, and who writes it.
SECTIONS: dict[str, tuple[str, Callable[[Result], str]]] = {
    "matrix-capsules": ("Matrix capsules: fused EM routing", claims),
    "two-threads": ("Two threads", claims),
    "capsnet": ("CapsNet against PyTorch's convolutions", claims),
    "routings": ("What routing costs", claims),
    "linear": ("Linear growth", claims),
    "onnx": ("onnxruntime against torchcaps, by a core's time for an answer", claims),
    "convolutions": ("Convolution through Fourier transforms", convolutions),
    "step": ("Every model, in time", steps),
    "step-compiled-paper": ("Every model of the papers' size, with torch.compile", steps),
    "step-compiled-laptop": ("Every model of laptop size, with torch.compile", steps),
    "memory": ("Every model, in memory", memory),
    "growth": ("Growth", growth),
    "malloc": ("Keeping freed memory", allocator),
    "data": ("Datasets", data),
}


def page(folder: Path = BENCH) -> str:
    """The whole page, from the files in a folder."""
    parts = [INTRODUCTION]
    for name, (title, write) in SECTIONS.items():
        source = folder / f"{name}.json"
        if source.is_file():
            result = json.loads(source.read_text(encoding="utf-8"))
            parts.append(f"## {title}\n\n{machine(result)}\n{write(result)}")
    return "\n".join(parts)


def main() -> None:
    (ROOT / "docs" / "performance.md").write_text(page(), encoding="utf-8")
    source = BENCH / "growth.json"
    if source.is_file():
        from torchcaps.bench.growth import draw_growth

        draw_growth(json.loads(source.read_text(encoding="utf-8"))["models"], PICTURE)


if __name__ == "__main__":
    main()
