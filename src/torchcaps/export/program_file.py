"""A traced model as a file of torch.export, for programs that have PyTorch but not this library."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch.export import ExportedProgram

from torchcaps.export.traced import Answer

DETAILS = "torchcaps.json"  # the name of what the file says about itself, for torch.export.load(extra_files=...)


def write_program(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write a file that ``torch.export.load`` reads; its answers, read back from it, come back for checking."""
    with target.open("wb") as stream, warnings.catch_warnings():  # by name, only names that end in .pt2 are taken
        # A kernel with its channels side by side is complete, whatever PyTorch thinks: it is read back below.
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, stream, extra_files={DETAILS: json.dumps(details)})
    with target.open("rb") as stream:
        run = torch.export.load(stream).module()
    return lambda images: run(images)[0]
