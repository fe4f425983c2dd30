"""What the project claims about its speed, each as a ratio with a target that this machine can check."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchcaps.bench.forms import Net, Subject, why_not_compiled
from torchcaps.bench.growth import BATCH, ITERATIONS, LARGE_BATCH, grow_memory, grow_time, routing_alone, training_step
from torchcaps.bench.memory import step_memory
from torchcaps.bench.steps import take_turns
from torchcaps.bench.timing import Budget, Seconds, Summary, interleaved, ratio, threads
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.export import INPUT, MODULES, export_model, open_session


# MERGED onnxruntime against ours: the same networks, answering on one thread.
# MERGED The cases of ``torchcaps bench claims``: each measures some ratios in one run.
@dataclass(frozen=True)
class Check:
    """A figure and what it should be.

    Args:
        what: in words, such as "training step, times the plain form".
        measured: the figure; None if it was not measured.
        low, high: where it should lie; None where there is no such bound. With neither, it is only reported.
        spread: of the rounds, where it is a ratio of times.
        note: why it was not measured, or what to know about it.
    """

    what: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    spread: Summary | None = None
    note: str = ""

    @property
    def target(self) -> str:
        """The bounds in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return "reported" if self.high is None else f"at most {self.high:g}"

    @property
    def met(self) -> bool | None:
        """Whether the figure lies where it should; None where nothing is asked or measured.

        >>> Check("ratio", 8.5, low=8).met, Check("ratio", 1.2, high=1.1).met, Check("ratio", 3.0).met
        (True, False, None)
        """
        if self.measured is None or (self.low is None and self.high is None):
            return None
        return (self.low is None or self.measured >= self.low) and (self.high is None or self.measured <= self.high)

    def as_row(self) -> dict[str, Any]:
        """For a result file."""
        row: dict[str, Any] = {"what": self.what, "measured": self.measured, "target": self.target, "met": self.met}
        row |= {"low": self.low, "high": self.high}
        return row | ({"spread": self.spread} if self.spread else {}) | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Settings:
    """What a case may be told: how long to measure, whether to compile, and how large its batches are.

    ``shrink`` divides all batches, to try out a case in little time; figures that count are measured with 1.
    """

    budget: Budget
    compiled: bool = False
    shrink: int = 1

    def batch(self, images: int) -> int:
        return max(1, images // self.shrink)


Case = Callable[[Settings], list[Check]]


def of_times(what: str, seconds: Seconds, name: str, base: str, *, note: str = "", **bounds: float) -> Check:
    """A check of what one job takes over what another takes; the note also tells both times."""
    medians = [1000 * statistics.median(seconds[job]) for job in (name, base)]
    times = " and ".join(f"{each:,.{0 if each >= 10 else 2}f} ms" for each in medians)
    found = ratio(seconds, name, base)
    return Check(what, found["median"], spread=found, note=f"{times}; {note}" if note else times, **bounds)


# Three kinds of routing, a network without any, and one of a paper's size; each with its numbers of images.
NETS: list[tuple[Net, tuple[int, ...]]] = [
    *((Net(name, "laptop"), (1, 32)) for name in ("capsnet", "matrix-capsnet", "ar-capsnet", "convnet-avg")),
    (Net("capsnet"), (32,)),
]


def onnx(settings: Settings) -> list[Check]:
    """onnxruntime against ours and against the plain form: a core's time for an answer."""
    try:
        need_extra("export", "onnxruntime's speed", *MODULES)
    except TorchcapsError as error:
        return [Check("inference: onnxruntime / ours", None, note=str(error))]
    checks = []
    for net, batches in NETS:
        with tempfile.TemporaryDirectory() as folder:
            session = open_session(export_model(net.create(), Path(folder) / "model.onnx").path, threads=1)
        for batch in map(settings.batch, batches):
            seconds = answer_in_turns(session, replace(net, batch=batch), settings.budget)
            what = f"{net.model}, {net.size}, {batch} image{'s' * (batch > 1)}: onnxruntime / {{}}"
            checks.append(of_times(what.format("ours"), seconds, "onnxruntime", "torchcaps"))
            checks.append(of_times(what.format("plain"), seconds, "onnxruntime", "plain"))
    return checks


def answer_in_turns(session: Any, net: Net, budget: Budget) -> Seconds:
    """Seconds of a core for an answer by onnxruntime and by PyTorch, fast and plain, in every round."""
    images = {INPUT: net.images_and_labels()[0].numpy()}
    jobs: dict[str, Callable[[], object]] = {form: Subject(net, form).infer for form in ("torchcaps", "plain")}
    jobs["onnxruntime"] = lambda: session.run(None, images)
    with threads(1):
        return interleaved(jobs, budget, f"{net.model}, onnxruntime", clock=time.process_time)


# The networks of hinton2018 as the paper counts them: 32 pixels, five classes.
LARGE = Net("matrix-capsnet", batch=8, image_size=32, classes=5)
SMALL = Net("matrix-capsnet-68k", batch=8, image_size=32, classes=5)
CAPSNET = Net("capsnet", batch=32)
NEAR_ONE = 0.9, 1.1  # exponents that count as linear
DIGITS = 60_000  # training images of MNIST


def matrix_capsules(settings: Settings) -> list[Check]:
    """Matrix capsules: fused EM routing against the plain form, in time and memory."""
    large, small = (replace(net, batch=settings.batch(net.batch)) for net in (LARGE, SMALL))
    reason = why_not_compiled() or (None if settings.compiled else "it takes minutes: ask for it with --compile")
    forms = ["torchcaps", "plain", *(() if reason else ("compiled",))]
    with threads(1):
        seconds = take_turns({form: (large, form) for form in forms}, "training", settings.budget)
        fewer = take_turns({form: (small, form) for form in ("torchcaps", "plain")}, "training", settings.budget)
    checks = [of_times("310K, step: plain / ours", seconds, "plain", "torchcaps", low=8)]
    what = "310K, step: torch.compile of plain / ours"
    if reason:
        checks.append(Check(what, None, low=3.5, note=reason))
    else:
        checks.append(of_times(what, seconds, "compiled", "torchcaps", low=3.5))
    checks.append(of_times("68K, step: plain / ours", fewer, "plain", "torchcaps", low=5))
    ours, plain = (step_memory(large, form) for form in ("torchcaps", "plain"))
    note = f"{ours['activations'] / 1e6:.0f} MB and {plain['activations'] / 1e6:.0f} MB"
    checks.append(
        Check("310K, activations: ours / plain", ours["activations"] / plain["activations"], high=0.1, note=note)
    )
    checks.append(Check("310K, peak: ours / plain", ours["peak"] / plain["peak"]))
    return checks


def two_threads(settings: Settings) -> list[Check]:
    """Two threads against one, training the 310K matrix capsules."""
    subject = Subject(replace(LARGE, batch=settings.batch(LARGE.batch)), "torchcaps")

    def on(count: int) -> None:
        with threads(count):
            subject.train_step()

    seconds = interleaved({"one": lambda: on(1), "two": lambda: on(2)}, settings.budget, "one thread and two")
    return [of_times("310K, step: one thread / two", seconds, "one", "two", low=1.7)]


def capsnet(settings: Settings) -> list[Check]:
    """CapsNet against PyTorch's own two convolutions and nothing else."""
    checks = []
    forms = ("torchcaps", "plain", "convolutions")
    with threads(1):
        for batch, most in ((32, 0.85), (128, 0.55)):
            net = replace(CAPSNET, batch=settings.batch(batch))
            seconds = take_turns({form: (net, form) for form in forms}, "training", settings.budget)
            what = f"step of {net.batch}: {{}} / PyTorch's convolutions"
            checks.append(of_times(what.format("ours"), seconds, "torchcaps", "convolutions", high=most))
            checks.append(of_times(what.format("plain"), seconds, "plain", "convolutions"))
        net = replace(CAPSNET, batch=settings.batch(32))
        seconds = take_turns({form: (net, form) for form in forms}, "inference", settings.budget)
        what = f"inference of {net.batch}: ours / PyTorch's convolutions"
        checks.append(of_times(what, seconds, "torchcaps", "convolutions", high=1.05))
    return checks


def routings(settings: Settings) -> list[Check]:
    """What a routing adds to CapsNet's step, and AR CapsNet's epoch against CapsNet's."""
    dynamic = replace(CAPSNET, batch=settings.batch(32))
    others = {
        name: replace(dynamic, options={**dynamic.options, "routing": name})
        for name in ("uniform", "discriminative-l2")
    }
    nets = {"dynamic": dynamic, **others}
    # Each of the two has the batch of its paper; an epoch is a step's time by the number of steps.
    epochs = {"ar-capsnet": settings.batch(100), "capsnet": settings.batch(128)}
    checks = []
    with threads(1):
        seconds = take_turns(
            {name: (net, "own convolutions") for name, net in nets.items()}, "training", settings.budget
        )
        what = "step with PyTorch's convolutions: {} / {}"
        checks.append(of_times(what.format("dynamic", "uniform"), seconds, "dynamic", "uniform", high=1.1))
        what = what.format("discriminative", "dynamic")
        checks.append(of_times(what, seconds, "discriminative-l2", "dynamic", note="the paper: at most 0.8"))
        for form, convolutions in (("own convolutions", "PyTorch's"), ("torchcaps", "fast")):
            jobs = {name: (Net(name, batch=batch), form) for name, batch in epochs.items()}
            seconds = {
                name: [DIGITS / epochs[name] * each for each in values]
                for name, values in take_turns(jobs, "training", settings.budget).items()
            }
            what = f"MNIST epoch with {convolutions} convolutions: AR CapsNet / CapsNet"
            checks.append(of_times(what, seconds, "ar-capsnet", "capsnet", note="the paper: 0.19 on a GPU"))
    return checks


def linear(settings: Settings) -> list[Check]:
    """Growth with batch and iterations: a straight line, and memory that stays."""
    checks = []
    for name, net, axis in (("matrix capsules", LARGE, BATCH), ("CapsNet", CAPSNET, LARGE_BATCH)):
        axis = replace(axis, values=tuple(images // min(settings.shrink, axis.values[0]) for images in axis.values))
        steps = grow_time(net, axis, training_step, settings.budget, ["torchcaps"])["torchcaps"]
        checks.append(of_growth(f"{name}: exponent of a step's time in the batch", steps))
        net = replace(net, batch=settings.batch(8))
        alone = grow_time(net, ITERATIONS, routing_alone, settings.budget, ["torchcaps"])["torchcaps"]
        checks.append(of_growth(f"{name}: exponent of the routing's time in iterations", alone))
    net = replace(LARGE, batch=settings.batch(8))
    memory = grow_memory(net, ITERATIONS, ["torchcaps"])["torchcaps"]
    for kind, words in (
        ("process", "the process's peak"),
        ("activations", "what a step keeps"),
        ("peak", "a step's peak beyond weights"),
    ):
        sizes = memory[kind]
        note = f"{sizes[0] / 1e6:.1f} MB at 1 and {sizes[-1] / 1e6:.1f} MB at {ITERATIONS.values[-1]}"
        what = f"matrix capsules: exponent of {words} in iterations"
        low, high = (-0.1, 0.1) if kind == "process" else (None, None)
        checks.append(Check(what, memory["exponents"][kind], low, high, note=note))
    return checks


def of_growth(what: str, times: dict[str, Any]) -> Check:
    """A check of an exponent of time, beyond what does not grow; the note has the one of the whole time."""
    note = f"beyond a fixed cost; of the whole time {times['exponent']:.2f}"
    return Check(what, times["exponent_beyond_fixed"], *NEAR_ONE, note=note)


CASES: dict[str, Case] = {
    "matrix-capsules": matrix_capsules,
    "two-threads": two_threads,
    "capsnet": capsnet,
    "routings": routings,
    "linear": linear,
    "onnx": onnx,
}
