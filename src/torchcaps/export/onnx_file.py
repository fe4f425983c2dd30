"""A traced model as an ONNX file, and its answers by onnxruntime."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchcaps.errors import need_extra
from torchcaps.export.traced import INPUT, OUTPUTS, Answer

MODULES = ("onnx", "onnxruntime", "onnxscript")
ERRORS_ONLY = 3  # a level of onnxruntime: what it thinks of a constant helps nobody


def write_onnx(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write one ONNX file with a dynamic batch; its answers come back for checking."""
    need_extra("export", "an ONNX file", *MODULES)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision, which nothing here needs, is not there
    outputs = OUTPUTS[: len(program.graph_signature.user_outputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch about itself
        exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[INPUT], output_names=outputs)
    assert exported is not None  # None comes only where a file was named
    exported.model.metadata_props.update(details)
    exported.model.producer_name = "torchcaps"
    exported.save(target, external_data=False)
    session = open_session(target, threads=1)
    return lambda images: torch.from_numpy(session.run(["scores"], {INPUT: images.cpu().numpy()})[0])


def open_session(file: Path, threads: int) -> Any:
    """onnxruntime with a file, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = ERRORS_ONLY
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
