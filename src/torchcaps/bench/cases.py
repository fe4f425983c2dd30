"""The cases of ``torchcaps bench claims``: each measures some ratios in one run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torchcaps.bench.claims import Case, Check, Settings, of_times
from torchcaps.bench.forms import Subject, why_not_compiled
from torchcaps.bench.growth import BATCH, ITERATIONS, LARGE_BATCH, grow_memory, grow_time, routing_alone, training_step
from torchcaps.bench.memory import step_memory
from torchcaps.bench.nets import Net
from torchcaps.bench.onnx import onnx
from torchcaps.bench.steps import take_turns
from torchcaps.bench.timing import interleaved, threads

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
