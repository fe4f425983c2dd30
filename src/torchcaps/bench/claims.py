"""The cases of ``torchcaps bench claims``: each measures ratios that the project claims, with their targets."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.bench.checks import Case, Check, ClaimSettings, ratio_check
from torchcaps.bench.growth import (
    BATCH,
    ITERATIONS,
    LARGE_BATCH,
    memory_along_axis,
    routing_alone,
    time_along_axis,
    training_step,
)
from torchcaps.bench.memory import step_memory
from torchcaps.bench.steps import TASKS, time_workloads
from torchcaps.bench.timing import Seconds, TimingBudget, num_threads, time_interleaved
from torchcaps.bench.workload import NetSpec, Workload, why_not_compiled
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.export import INPUT, MODULES, OnnxInference, export_model, open_session
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer, Capsules
from torchcaps.models import FastInference

# Three routings, a network without routing, and one of paper size; each with its batch sizes.
NETS: list[tuple[NetSpec, tuple[int, ...]]] = [
    *((NetSpec(name, "laptop"), (1, 32)) for name in ("capsnet", "matrix-capsnet", "ar-capsnet", "convnet-avg")),
    (NetSpec("capsnet"), (32,)),
]


def onnx_inference(settings: ClaimSettings) -> list[Check]:
    """onnxruntime against ours, the plain form and the service, which uses the faster one: CPU time for an answer."""
    try:
        need_extra("export", "onnxruntime's speed", *MODULES)
    except TorchcapsError as error:
        return [Check("inference: onnxruntime / ours", None, note=str(error))]
    checks = []
    for net, batches in NETS:
        with tempfile.TemporaryDirectory() as folder:
            session = open_session(export_model(net.create(), Path(folder) / "model.onnx").path, threads=1)
        for batch in map(settings.batch, batches):
            seconds = time_onnx_inference(session, replace(net, batch=batch), settings.budget)
            what = f"{net.model}, {net.size}, {batch} image{'s' * (batch > 1)}: onnxruntime / {{}}"
            checks.append(ratio_check(what.format("ours"), seconds, "onnxruntime", "torchcaps"))
            checks.append(ratio_check(what.format("plain"), seconds, "onnxruntime", "plain"))
            if "service" in seconds:
                checks.append(ratio_check(what.format("service"), seconds, "onnxruntime", "service", low=0.9))
    return checks


def time_onnx_inference(session: Any, net: NetSpec, budget: TimingBudget) -> Seconds:
    """CPU seconds of inference with onnxruntime, with both forms of PyTorch, and for one image as in the service."""
    images, model = net.images_and_labels()[0], net.create()
    arrays, predict = {INPUT: images.numpy()}, FastInference(model, net.batch)
    jobs: dict[str, Callable[[], object]] = {
        "torchcaps": lambda: predict(images),
        "plain": Workload(net, "plain").infer,
        "onnxruntime": lambda: session.run(None, arrays),
    }
    with num_threads(1):
        if net.batch == 1:
            service = FastInference(model)
            service.offer(OnnxInference(model))
            jobs["service"] = lambda: service(images)
        return time_interleaved(jobs, budget, f"{net.model}, onnxruntime", clock=time.process_time)


# The networks of hinton2018 with the paper's parameter counts: 32 pixels, five classes.
LARGE = NetSpec("matrix-capsnet", batch=8, image_size=32, classes=5)
SMALL = NetSpec("matrix-capsnet-68k", batch=8, image_size=32, classes=5)
CAPSNET = NetSpec("capsnet", batch=32)
DESK_CAPSNET = NetSpec("capsnet", "laptop", batch=64, image_size=40)
NEAR_ONE = 0.9, 1.1  # exponents that count as linear
DIGITS = 60_000  # training images of MNIST


def matrix_capsules(settings: ClaimSettings) -> list[Check]:
    """Matrix capsules: fused EM routing against the plain form, in time and memory."""
    large, small = (replace(net, batch=settings.batch(net.batch)) for net in (LARGE, SMALL))
    reason = why_not_compiled() or (None if settings.compiled else "it takes minutes: ask for it with --compile")
    forms = ["torchcaps", "plain", *(() if reason else ("compiled",))]
    with num_threads(1):
        seconds = time_workloads({form: (large, form) for form in forms}, "training", settings.budget)
        fewer = time_workloads({form: (small, form) for form in ("torchcaps", "plain")}, "training", settings.budget)
    checks = [ratio_check("310K, step: plain / ours", seconds, "plain", "torchcaps", low=8)]
    what = "310K, step: torch.compile of plain / ours"
    if reason:
        checks.append(Check(what, None, low=3.5, note=reason))
    else:
        checks.append(ratio_check(what, seconds, "compiled", "torchcaps", low=3.5))
    checks.append(ratio_check("68K, step: plain / ours", fewer, "plain", "torchcaps", low=5))
    ours, plain = (step_memory(large, form) for form in ("torchcaps", "plain"))
    note = f"{ours['activations'] / 1e6:.0f} MB and {plain['activations'] / 1e6:.0f} MB"
    checks.append(
        Check("310K, activations: ours / plain", ours["activations"] / plain["activations"], high=0.1, note=note)
    )
    checks.append(Check("310K, peak: ours / plain", ours["peak"] / plain["peak"]))
    return checks


def two_thread_speedup(settings: ClaimSettings) -> list[Check]:
    """Two threads against one, training the 310K matrix capsules."""
    workload = Workload(replace(LARGE, batch=settings.batch(LARGE.batch)), "torchcaps")

    def on(count: int) -> None:
        with num_threads(count):
            workload.train_step()

    seconds = time_interleaved({"one": lambda: on(1), "two": lambda: on(2)}, settings.budget, "one thread and two")
    return [ratio_check("310K, step: one thread / two", seconds, "one", "two", low=1.7)]


def capsnet_step(settings: ClaimSettings) -> list[Check]:
    """CapsNet against PyTorch's own two convolutions and nothing else, in CPU time."""
    checks = []
    forms = ("torchcaps", "plain", "convolutions")

    def time_task(net: NetSpec, task: str) -> Seconds:
        return time_workloads({form: (net, form) for form in forms}, task, settings.budget, time.process_time)

    with num_threads(1):
        for base, batch, most in ((CAPSNET, 32, 0.85), (CAPSNET, 128, 0.55), (DESK_CAPSNET, 64, 1.0)):
            net = replace(base, batch=settings.batch(batch))
            size = ", laptop size, 40 pixels" if base is DESK_CAPSNET else ""
            seconds = time_task(net, "training")
            what = f"step of {net.batch}{size}: {{}} / PyTorch's convolutions"
            checks.append(ratio_check(what.format("ours"), seconds, "torchcaps", "convolutions", high=most))
            checks.append(ratio_check(what.format("plain"), seconds, "plain", "convolutions"))
        net = replace(CAPSNET, batch=settings.batch(32))
        what = f"inference of {net.batch}: ours / PyTorch's convolutions"
        checks.append(ratio_check(what, time_task(net, "inference"), "torchcaps", "convolutions", high=1.05))
    return checks


def routing_cost(settings: ClaimSettings) -> list[Check]:
    """What a routing adds to CapsNet's step, and AR CapsNet's epoch against CapsNet's."""
    dynamic = replace(CAPSNET, batch=settings.batch(32))
    others = {
        name: replace(dynamic, options={**dynamic.options, "routing": name})
        for name in ("uniform", "discriminative-l2")
    }
    nets = {"dynamic": dynamic, **others}
    # Each has the batch size of its paper; an epoch is the step time multiplied by the number of steps.
    epochs = {"ar-capsnet": settings.batch(100), "capsnet": settings.batch(128)}
    checks = []
    with num_threads(1):
        seconds = time_workloads(
            {name: (net, "pytorch convolutions") for name, net in nets.items()}, "training", settings.budget
        )
        what = "step with PyTorch's convolutions: {} / {}"
        checks.append(ratio_check(what.format("dynamic", "uniform"), seconds, "dynamic", "uniform", high=1.1))
        what = what.format("discriminative", "dynamic")
        checks.append(ratio_check(what, seconds, "discriminative-l2", "dynamic", note="the paper: at most 0.8"))
        for form, convolutions in (("pytorch convolutions", "PyTorch's"), ("torchcaps", "fast")):
            jobs = {name: (NetSpec(name, batch=batch), form) for name, batch in epochs.items()}
            seconds = {
                name: [DIGITS / epochs[name] * each for each in values]
                for name, values in time_workloads(jobs, "training", settings.budget).items()
            }
            what = f"MNIST epoch with {convolutions} convolutions: AR CapsNet / CapsNet"
            checks.append(ratio_check(what, seconds, "ar-capsnet", "capsnet", note="the paper: 0.19 on a GPU"))
    return checks


def linear_scaling(settings: ClaimSettings) -> list[Check]:
    """Growth with batch and iterations: a straight line, and memory that stays."""
    checks = []
    for name, net, axis in (("matrix capsules", LARGE, BATCH), ("CapsNet", CAPSNET, LARGE_BATCH)):
        axis = replace(axis, values=tuple(images // min(settings.shrink, axis.values[0]) for images in axis.values))
        steps = time_along_axis(net, axis, training_step, settings.budget, ["torchcaps"])["torchcaps"]
        checks.append(growth_check(f"{name}: exponent of a step's time in the batch", steps))
        net = replace(net, batch=settings.batch(8))
        alone = time_along_axis(net, ITERATIONS, routing_alone, settings.budget, ["torchcaps"])["torchcaps"]
        checks.append(growth_check(f"{name}: exponent of the routing's time in iterations", alone))
    net = replace(LARGE, batch=settings.batch(8))
    memory = memory_along_axis(net, ITERATIONS, ["torchcaps"])["torchcaps"]
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


def growth_check(what: str, times: dict[str, Any]) -> Check:
    """A check of the time's exponent beyond a fixed cost; the note has the exponent of the total time."""
    note = f"beyond a fixed cost; of the whole time {times['exponent']:.2f}"
    return Check(what, times["exponent_beyond_fixed"], *NEAR_ONE, note=note)


def gpu_routing(settings: ClaimSettings) -> list[Check]:
    """Triton kernels on a GPU against plain PyTorch: time, memory and agreement."""
    forms = ["torchcaps", "plain", *(["compiled"] if settings.compiled else [])]
    checks = []
    for title, net in (("matrix capsules", replace(LARGE, batch=16)), ("CapsNet", replace(CAPSNET, batch=128))):
        net = replace(net, batch=settings.batch(net.batch))
        workloads = {form: Workload(net, form, settings.device) for form in forms}
        ours, plain = (workloads[form].scores() for form in ("torchcaps", "plain"))
        checks.append(Check(f"{title}: largest difference of a score", (ours - plain).abs().max().item(), high=1e-3))
        for task in ("training", "inference"):
            jobs = {form: partial(run_and_wait, TASKS[task], workload) for form, workload in workloads.items()}
            seconds = time_interleaved(jobs, settings.budget, f"{net.model}, {task}")
            for form in forms[1:]:
                checks.append(ratio_check(f"{title}, {task}: {form} / ours", seconds, form, "torchcaps"))
        if settings.device != "cpu":
            sizes = [gpu_step_memory(workloads[form]) for form in ("torchcaps", "plain")]
            note = " and ".join(f"{size / 1e6:.0f} MB" for size in sizes)
            checks.append(Check(f"{title}, a step's peak memory: ours / plain", sizes[0] / sizes[1], note=note))
    return checks


def run_and_wait(task: Callable[[Workload], None], workload: Workload) -> None:
    """Run a task and wait for the GPU to finish it."""
    task(workload)
    if workload.images.is_cuda:
        torch.cuda.synchronize(workload.images.device)


def gpu_step_memory(workload: Workload) -> int:
    """Peak of the GPU memory that a training step allocates, in bytes, beyond what is allocated before it."""
    device = workload.images.device
    workload.optimizer.zero_grad()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run_and_wait(Workload.train_step, workload)
    return torch.cuda.max_memory_allocated(device) - before


def child_sizes(settings: ClaimSettings) -> list[Check]:
    """Fused dynamic routing for children of several sizes against the plain form: CPU time, forward and backward."""
    checks = []
    for size in (4, 6, 8, 12, 16):
        torch.manual_seed(0)
        layer, poses = CapsuleLayer.dense(512, size, 10, 16), torch.randn(settings.batch(64), 8, 8, 8, size)

        def run(kernels: str, layer: CapsuleLayer = layer, poses: Tensor = poses) -> None:
            with use_kernels(kernels):
                layer(Capsules(poses)).pose.square().sum().backward()

        with num_threads(1):
            jobs = {"plain": partial(run, "plain"), "torchcaps": partial(run, "auto")}
            seconds = time_interleaved(jobs, settings.budget, f"children of {size}", time.process_time)
        what = f"512 children of {size} numbers, batch {len(poses)}: plain / ours"
        checks.append(ratio_check(what, seconds, "plain", "torchcaps", low=1.0))
    return checks


def mixed_precision(settings: ClaimSettings) -> list[Check]:
    """Training steps in bfloat16 mixed precision against float32, laptop size: CPU time."""
    checks = []
    for name, side in (("capsnet", 40), ("aff-capsnet", 40), ("convnet-fc", 40), ("ar-capsnet", 28)):
        net = NetSpec(name, size="laptop", batch=settings.batch(64), image_size=side)
        jobs = {form: (net, form) for form in ("torchcaps", "bfloat16")}
        with num_threads(1):
            seconds = time_workloads(jobs, "training", settings.budget, time.process_time)
        what = f"{name}, {side} pixels, step of {net.batch}: float32 / bfloat16"
        checks.append(ratio_check(what, seconds, "torchcaps", "bfloat16"))
    return checks


GPU_CASES: dict[str, Case] = {"gpu": gpu_routing}
CASES: dict[str, Case] = {
    "matrix-capsules": matrix_capsules,
    "two-threads": two_thread_speedup,
    "capsnet": capsnet_step,
    "routings": routing_cost,
    "linear": linear_scaling,
    "onnx": onnx_inference,
    "child-sizes": child_sizes,
    "bfloat16": mixed_precision,
}
