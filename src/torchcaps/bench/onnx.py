"""onnxruntime against ours: the same networks, answering on one thread."""

from __future__ import annotations

import tempfile
from pathlib import Path

from torchcaps.bench.claims import Check, Settings, of_times
from torchcaps.bench.forms import Subject
from torchcaps.bench.nets import Net
from torchcaps.bench.timing import Seconds, interleaved, threads
from torchcaps.errors import TorchcapsError, need_extra
from torchcaps.export import export_model
from torchcaps.export.onnx_file import MODULES, open_session
from torchcaps.export.traced import INPUT

# One of each kind of routing, a network without any, and two of a paper's size.
NETS = (
    *(Net(name, "laptop", batch) for name in ("capsnet", "matrix-capsnet", "ar-capsnet") for batch in (1, 32)),
    *(Net(name, "laptop", batch) for name in ("g-capsnet-fc", "capsnet-nor", "convnet-avg") for batch in (1, 32)),
    Net("capsnet", "paper", 32),
    Net("matrix-capsnet", "paper", 8),
)


def onnx(settings: Settings) -> list[Check]:
    """onnxruntime against ours and against the plain form, answering on one thread."""
    try:
        need_extra("export", "onnxruntime's speed", *MODULES)
    except TorchcapsError as error:
        return [Check("inference: onnxruntime / ours", None, note=str(error))]
    checks = []
    for net in NETS:
        seconds = answer_in_turns(Net(net.model, net.size, settings.batch(net.batch)), settings)
        what = f"{net.model}, {net.size}, {settings.batch(net.batch)} images: onnxruntime / {{}}"
        checks.append(of_times(what.format("ours"), seconds, "onnxruntime", "torchcaps"))
        checks.append(of_times(what.format("plain"), seconds, "onnxruntime", "plain"))
    return checks


def answer_in_turns(net: Net, settings: Settings) -> Seconds:
    """Seconds of an answer by onnxruntime and by PyTorch, fast and plain, in every round."""
    with tempfile.TemporaryDirectory() as folder, threads(1):
        session = open_session(export_model(net.create(), Path(folder) / "model.onnx").path, 1)
        images = {INPUT: net.images_and_labels()[0].numpy()}
        jobs = {form: Subject(net, form).infer for form in ("torchcaps", "plain")}
        return interleaved(
            {**jobs, "onnxruntime": lambda: session.run(None, images)}, settings.budget, f"{net.model}, onnxruntime"
        )
