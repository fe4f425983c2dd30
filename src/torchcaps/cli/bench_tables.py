"""Tables of ``torchcaps bench``."""

from __future__ import annotations

from typing import Any

from torchcaps.cli import console

MET = {True: "yes", False: "NO", None: ""}


def print_steps(rows: list[dict[str, Any]]) -> None:
    """Milliseconds of each implementation: the median and the quartiles."""
    forms = list(dict.fromkeys(form for row in rows for form in row["seconds"]))

    def cell(seconds: dict[str, float] | None) -> str:
        if seconds is None:
            return ""
        low, middle, high = (1000 * seconds[key] for key in ("lower_quartile", "median", "upper_quartile"))
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"

    table = [
        (
            f"{row['model']}, {row['size']}",
            row["task"],
            str(row["batch"]),
            str(row["threads"]),
            *(cell(row["seconds"].get(form)) for form in forms),
        )
        for row in rows
    ]
    title = "Time in ms: median (quartiles)"
    console.print_table(title, ("model", "task", "batch", "threads", *forms), table, numbers=len(forms))


def print_against(rows: list[dict[str, Any]]) -> None:
    """CPU milliseconds of this tree and of the other commit, and the ratio with its quartiles."""
    table = [
        (
            f"{row['model']}, {row['size']}, {row['image'][1]} px",
            f"{row['task']}, {row['batch']}",
            *(f"{1000 * row['seconds'][tree]['median']:.1f}" for tree in ("other", "this")),
            "{median:.2f} ({lower_quartile:.2f} to {upper_quartile:.2f})".format(**row["times faster"]),
        )
        for row in rows
    ]
    columns = ("model", "task, batch", "other, ms", "this, ms", "times faster (quartiles)")
    console.print_table("CPU time in ms, one thread", columns, table, numbers=3)


def print_memory(rows: list[dict[str, Any]]) -> None:
    """Megabytes of each implementation: activations and peak."""
    forms = list(dict.fromkeys(form for row in rows for form in row["bytes"]))

    def cell(sizes: dict[str, int] | None) -> str:
        return "" if sizes is None else f"{sizes['activations'] / 1e6:.1f} / {sizes['peak'] / 1e6:.1f}"

    table = [
        (f"{row['model']}, {row['size']}", str(row["batch"]), *(cell(row["bytes"].get(form)) for form in forms))
        for row in rows
    ]
    title = "Memory of a training step in MB: activations / peak"
    console.print_table(title, ("model", "batch", *forms), table, numbers=len(forms))


def print_growth(models: dict[str, Any]) -> None:
    """The fitted exponents of each model, axis and implementation."""
    rows = [
        (model, title, form, f"{axis['values'][0]} to {axis['values'][-1]}", *(f"{value:.2f}" for value in exponents))
        for model, axes in models.items()
        for title, axis in axes.items()
        for form in axis["seconds"]
        for exponents in [(axis["seconds"][form]["exponent"], *axis["bytes"][form]["exponents"].values())]
    ]
    columns = ("model", "axis", "form", "range", "time", "activations", "peak", "process")
    console.print_table("Scaling exponents", columns, rows, numbers=4)


def print_claims(title: str, rows: list[dict[str, Any]]) -> None:
    """Each claim with the measured figure, the target, and whether it is met."""

    def figure(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.3g}"

    table = [
        (row["what"], figure(row["measured"]), row["target"], MET[row["met"]], row.get("note", "")) for row in rows
    ]
    console.print_table(title, ("claim", "measured", "target", "met", "note"), table)


def print_allocators(jobs: dict[str, dict[str, float]]) -> None:
    """Each job with and without the tuned allocator."""
    rows = [
        (name, *(f"{1000 * job[key]:.1f}" for key in ("plain_seconds", "tuned_seconds")), f"{job['ratio']:.2f}")
        for name, job in jobs.items()
    ]
    console.print_table("Allocator", ("job", "default, ms", "tuned, ms", "ratio"), rows, numbers=3)


def print_convolutions(rows: list[dict[str, Any]]) -> None:
    """Both implementations of each layer, batch size and mode, and their ratio."""
    table = [
        (
            row["layer"],
            row["mode"],
            str(row["batch"]),
            *(f"{1000 * row['seconds'][form]:.1f}" for form in ("pytorch", "spectral")),
            f"{row['ratio']:.2f}",
        )
        for row in rows
    ]
    columns = ("layer", "mode", "batch", "PyTorch, ms", "FFT, ms", "ratio")
    console.print_table("Convolutions on one thread", columns, table, numbers=4)


def print_data(rows: list[dict[str, Any]]) -> None:
    """The speed of each dataset against its target."""
    columns = ("what", "unit", "measured", "by the clock", "target")
    table = [(str(row["what"]), str(row["unit"]), *(f"{row[name]:,}" for name in columns[2:])) for row in rows]
    console.print_table("Data on one core", columns, table, numbers=3)


def print_learning(rows: list[dict[str, Any]]) -> None:
    """Images and core-seconds to each target, and the accuracy at the end."""

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}"

    table = [
        (
            row["case"],
            row["recipe"],
            f"{row['target']:.1%}",
            f"{row['reached']} of {row['seeds']}",
            figure(row["images"]),
            figure(row["core_seconds"]),
            f"{row['final_accuracy']:.2%} ({figure(row['final_images'])})",
        )
        for row in rows
    ]
    columns = ("case", "recipe", "target", "reached", "images", "core-seconds", "at the end (images)")
    console.print_table("Images to accuracy", columns, table, numbers=5)
