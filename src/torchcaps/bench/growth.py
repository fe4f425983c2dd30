"""Scaling of time and memory with batch size, capsule types, routing iterations and image size.

The exponent e of x ** e is fitted by least squares on logarithms; for times also beyond a fixed cost. The points of an
axis run interleaved in one process; memory is measured in a fresh process for each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from torchcaps.bench.memory import step_memory
from torchcaps.bench.timing import TimingBudget, num_threads, quartiles, time_interleaved
from torchcaps.bench.workload import NetSpec, Workload
from torchcaps.errors import unknown_name
from torchcaps.files import atomic_path
from torchcaps.layers import Capsules
from torchcaps.models.capsule_model import CapsuleModel
from torchcaps.progress import progress_bar

matplotlib.use("agg")

Job = Callable[[], None]
FORMS = ("torchcaps", "plain")
KINDS = ("activations", "peak", "process")


@dataclass(frozen=True)
class Axis:
    """A quantity that is varied: its values, and how a network gets one of them."""

    values: tuple[int, ...]
    apply: Callable[[NetSpec, int], NetSpec]


def _option(net: NetSpec, name: str, value: Any) -> NetSpec:
    return replace(net, options={**net.options, name: value})


BATCH = Axis((2, 4, 8, 16), lambda net, value: replace(net, batch=value))
LARGE_BATCH = replace(BATCH, values=(16, 32, 64, 128))  # large enough that Adam's step no longer dominates
ITERATIONS = Axis((1, 2, 3, 4, 5), lambda net, value: _option(net, "routing_options", {"iterations": value}))
PIXELS = Axis((20, 28, 40), lambda net, value: replace(net, image_size=value))
# For each model: the base network and the axes.
MODELS: dict[str, tuple[NetSpec, dict[str, Axis]]] = {
    "matrix-capsnet": (
        NetSpec("matrix-capsnet", batch=4, image_size=32, classes=5),
        {
            "batch": BATCH,
            "types": Axis((8, 16, 32), lambda net, value: _option(net, "types", (value,) * 3)),
            "iterations": ITERATIONS,
            "image size": PIXELS,
        },
    ),
    "capsnet": (
        NetSpec("capsnet", batch=8),
        {
            "batch": LARGE_BATCH,
            "types": Axis((8, 16, 32, 64), lambda net, value: _option(net, "types", value)),
            "iterations": ITERATIONS,
            "image size": PIXELS,
        },
    ),
}


def measure_growth(names: Sequence[str], budget: TimingBudget) -> Iterator[dict[str, Any]]:
    """For each model and axis: the values, and each form's seconds, bytes and exponents, on one thread.

    Yields everything measured so far after each axis.
    """
    for name in names:
        if name not in MODELS:
            raise unknown_name("model with growth axes", name, MODELS)
    result: dict[str, Any] = {}
    for name in names:
        net, axes = MODELS[name]
        result[name] = {}
        for title, axis in axes.items():
            measured = {"values": list(axis.values), "batch": net.batch}
            measured["seconds"] = time_along_axis(net, axis, training_step, budget)
            measured["bytes"] = memory_along_axis(net, axis)
            if axis is ITERATIONS:  # the rest of a step does not depend on iterations
                measured["seconds, routing alone"] = time_along_axis(net, axis, routing_alone, budget)
            result[name][title] = measured
            yield result


def time_along_axis(
    net: NetSpec, axis: Axis, build: Callable[[NetSpec, str], Job], budget: TimingBudget, forms: Iterable[str] = FORMS
) -> dict[str, Any]:
    """Seconds of a job along an axis, and the exponents, for each form; on one thread."""
    points = {value: axis.apply(net, value) for value in axis.values}
    with num_threads(1):
        jobs = {f"{form} {value}": build(point, form) for form in forms for value, point in points.items()}
        seconds = time_interleaved(jobs, budget, f"{net.model}: {build.__name__.replace('_', ' ')}")
    result = {}
    for form in forms:
        each = [quartiles(seconds[f"{form} {value}"]) for value in points]
        medians = [point["median"] for point in each]
        beyond = exponent_beyond_fixed(axis.values, medians)
        result[form] = {"points": each, "exponent": exponent(axis.values, medians), "exponent_beyond_fixed": beyond}
    return result


def memory_along_axis(net: NetSpec, axis: Axis, forms: Iterable[str] = FORMS) -> dict[str, Any]:
    """Bytes of a training step along an axis, and the exponents, for each form."""
    result: dict[str, Any] = {form: {kind: [] for kind in KINDS} for form in forms}
    with progress_bar(f"{net.model}: memory", len(result) * len(axis.values)) as advance:
        for form, measured in result.items():
            for value in axis.values:
                for kind, size in step_memory(axis.apply(net, value), form).items():
                    measured[kind].append(size)
                advance(1)
            measured["exponents"] = {kind: exponent(axis.values, measured[kind]) for kind in KINDS}
    return result


def training_step(net: NetSpec, form: str) -> Job:
    """A job: one training step."""
    return Workload(net, form).train_step


def routing_alone(net: NetSpec, form: str) -> Job:
    """A job: forward and backward from primary to class capsules."""
    workload = Workload(net, form)
    model = workload.model
    assert isinstance(model, CapsuleModel)  # all models with axes are
    with torch.no_grad():
        primary = model.primary(model.features(model.preprocess(workload.images)))
    active = None if primary.activation is None else primary.activation.detach().requires_grad_()
    leaves = Capsules(primary.pose.detach().requires_grad_(), active)

    def route() -> None:
        with workload.kernels():
            capsules, _ = model.capsules(leaves)
            capsules.pose.square().mean().backward()

    return route


def exponent(values: Sequence[float], measured: Sequence[float]) -> float:
    """The exponent e of measured ~ values ** e, by least squares on logarithms.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    slope, _ = np.polyfit(np.log(values), np.log(np.maximum(measured, 1e-12)), 1)
    return float(slope)


def exponent_beyond_fixed(values: Sequence[float], measured: Sequence[float]) -> float:
    """The exponent e of measured ~ c + k * values ** e, by least squares on relative errors.

    The fixed cost c is, for example, the optimizer's step, which does not depend on the batch size. It can be negative:
    EM has one E-step less than iterations.

    >>> exponent_beyond_fixed([1, 2, 4, 8], [7, 9, 13, 21])
    1.0
    """
    x, y = np.asarray(values, float), np.asarray(measured, float)

    def error(power: float) -> float:
        terms = np.stack([1 / y, x**power / y], 1)
        fitted = np.linalg.lstsq(terms, np.ones(len(y)), rcond=None)[0]
        return float(np.square(terms @ fitted - 1).sum())

    return min((round(0.01 * step, 2) for step in range(10, 301)), key=error)


COLORS = {"torchcaps": "#0072b2", "plain": "#e69f00"}  # distinguishable with any color vision
INK = "#7a8594"  # readable on light and dark pages
STYLE = {"svg.hashsalt": "torchcaps", "svg.fonttype": "none", "axes.edgecolor": INK, "font.size": 9}
STYLE |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor"), INK)


def draw_growth(growth: dict[str, Any], target: Path) -> None:
    """Write an SVG: one column per axis, and per model one row of seconds and one of megabytes."""
    columns = list(next(iter(growth.values())))
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        size = 2.6 * len(columns), 4.6 * len(growth)
        figure, grid = plt.subplots(2 * len(growth), len(columns), figsize=size, squeeze=False, layout="tight")
        for number, (model, axes) in enumerate(growth.items()):
            for column, title in enumerate(columns):
                above, below = grid[2 * number, column], grid[2 * number + 1, column]
                _draw_times(above, axes[title])
                _draw_bytes(below, axes[title])
                above.set_title(f"{model}: {title}")
                for plot in (above, below):
                    _finish(plot, axes[title]["values"])
            grid[2 * number, 0].set_ylabel("seconds per step")
            grid[2 * number + 1, 0].set_ylabel("peak memory, MB")
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def _draw_times(plot: Axes, axis: dict[str, Any]) -> None:
    for form in [form for form in COLORS if form in axis["seconds"]]:
        measured = axis["seconds"][form]
        points = measured["points"]
        middles = [point["median"] for point in points]
        lower = [point["median"] - point["lower_quartile"] for point in points]
        upper = [point["upper_quartile"] - point["median"] for point in points]
        label = f"{form}, x^{measured['exponent']:.2f}"
        plot.errorbar(axis["values"], middles, (lower, upper), color=COLORS[form], marker="o", ms=3, label=label)


def _draw_bytes(plot: Axes, axis: dict[str, Any]) -> None:
    for form in [form for form in COLORS if form in axis["bytes"]]:
        measured = axis["bytes"][form]
        megabytes = [size / 1e6 for size in measured["peak"]]
        label = f"{form}, x^{measured['exponents']['peak']:.2f}"
        plot.plot(axis["values"], megabytes, color=COLORS[form], marker="o", ms=3, label=label)


def _finish(plot: Axes, values: list[int]) -> None:
    plot.set(xscale="log", yscale="log")
    low, high = plot.get_ylim()
    middle, half = (low * high) ** 0.5, max((high / low) ** 0.5, 10**0.5)
    plot.set_ylim(
        middle / half, middle * half
    )  # span at least a factor of ten, so that noise does not look like growth
    plot.xaxis.set_major_locator(FixedLocator(values))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter("{x:.0f}")
    plot.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plot.yaxis.set_minor_locator(NullLocator())
    plot.yaxis.set_major_formatter("{x:g}")
    plot.grid(alpha=0.3)
    plot.legend(frameon=False, fontsize=7)
