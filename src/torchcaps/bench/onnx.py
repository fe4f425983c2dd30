"""onnxruntime against ours: the same networks, answering on one thread."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps.bench.claims import Check, Settings, of_times
from torchcaps.bench.forms import Subject
from torchcaps.bench.nets import Net
from torchcaps.bench.timing import Budget, Seconds, interleaved, threads
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.export import export_model
from torchcaps.export.onnx_file import MODULES, open_session
from torchcaps.export.traced import INPUT

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
