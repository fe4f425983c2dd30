"""Good files of every kind, for others to damage."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from torchcaps.data.verified import File
from torchcaps.train import resolve
from torchcaps.train.checkpoint import Progress, save_checkpoint

CONFIG = resolve(model="lenet", data="glyphs", options={"filters": [2, 3], "hidden": 8})
RESULT = {
    "paper": "gu2021", "table": "table1", "cell": "a", "profile": "laptop", "seed": 0, "measure": "test-error",
    "unit": "%", "value": 1.5, "fingerprint": "x", "environment": {"command": "x"},
}  # fmt: skip
CARD = {
    "model": "capsnet", "tag": "x", "data": "mnist", "parameters": 1, "test_accuracy": 0.5, "test_images": 10,
    "selection_split": "validation", "sha256": "0", "training": {}, "licence": "MIT",
}  # fmt: skip
SPEC = "paper: a2026\ntitle: A\nauthors: B\ndefaults: {}\ntrainings: {}\ntables: {}\nclaims: {}\n"
METRICS = "step,epoch,split,loss,accuracy,learning_rate,images_per_second,seconds\n50,1.0,train,0.5,0.9,0.001,99,1\n"


TABLE = b"path,label\na.png,cat\nb.png,dog\n"
FILE = File("inside.bin", 600, "sha256:" + "0" * 64)


def small_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def checkpoint_bytes(folder: Path) -> bytes:
    path = folder / "good.safetensors"
    save_checkpoint(path, *small_model(), Progress(step=3))
    return path.read_bytes()


def picture_bytes(kind: str) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3)).astype("u1")
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def tar_bytes() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo(f"package/{FILE.name}")
        member.size = FILE.size
        archive.addfile(member, io.BytesIO(bytes(FILE.size)))
    return stream.getvalue()


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"package/{FILE.name}", bytes(FILE.size))
    return stream.getvalue()
