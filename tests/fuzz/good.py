"""Valid files of every kind, as a basis for mutations."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from torchcaps.data.io.download import File
from torchcaps.evaluate.affine import FACTORS, STEPS
from torchcaps.reproduce.spec import load_spec
from torchcaps.train import RunFolder, resolve
from torchcaps.train.checkpoint import TrainingProgress, save_checkpoint, save_weights

CONFIG = resolve(model="lenet", data="glyphs", options={"filters": [2, 3], "hidden": 8})
CAPSULES = resolve(
    model="capsnet",
    data="glyphs",
    options={
        "filters": 4, "types": 2, "primary_size": 4, "class_size": 4, "hidden": [4, 4], "routing": "dynamic",
        "routing_options": {"iterations": 2}, "nonlinearity": "squash", "decoder": "conditional",
    },
)  # fmt: skip
RESULT = {
    "paper": "gu2021", "table": "table1", "cell": "a", "profile": "laptop", "seed": 0, "measure": "test-error",
    "unit": "%", "value": 1.5, "fingerprint": "x", "environment": {"command": "x"},
}  # fmt: skip
CARD = {
    "model": "capsnet", "tag": "x", "data": "mnist", "parameters": 1, "test_accuracy": 0.5, "test_images": 10,
    "selection_split": "validation", "sha256": "0", "training": {}, "licence": "MIT",
}  # fmt: skip
CELL = next(iter(load_spec("gu2021").tables["table1"].cells))
SPEC = "paper: a2026\ntitle: A\nauthors: B\ndefaults: {}\ntrainings: {}\ntables: {}\nclaims: {}\n"
METRICS = (
    "step,epoch,split,loss,accuracy,learning_rate,images_per_second,seconds\n"
    "50,1.0,train,0.5,0.9,0.001,99,1\n50,1.0,validation,,0.8,0.001,99,1\n"
)
# A run's own files, as evaluate and compare write them.
ENVIRONMENT = {
    "command": "torchcaps train lenet", "commit": None, "versions": {"python": "3.11", "torch": "2.6", "x": None},
    "platform": "x", "processor": "x", "cores": 2, "threads": 1, "accelerator": None,
}  # fmt: skip
RUN_RESULT = {
    "model": "lenet", "size": "laptop", "data": "glyphs", "seed": 0, "parameters": 5, "selection_split": "validation",
    "selected_step": 50, "validation_accuracy": 0.8, "stop_at_accuracy": None, "reached": None, "test_accuracy": 0.75,
    "test_images": 4, "training_seconds": 1.5, "images_per_second": 99.5,
    "confusion": [[int(row == column) for column in range(len(CONFIG.class_names))]
                  for row in range(len(CONFIG.class_names))],
    "environment": ENVIRONMENT,
}  # fmt: skip
ROBUSTNESS = {
    "run": "x", "model": "lenet", "size": "laptop", "data": "glyphs", "seed": 0, "refused": {},
    "tests": {
        "affnist": {
            "name": "x", "about": "x", "images": 4, "upright_accuracy": 0.5, "accuracy": 0.25,
            "curves": {name: {"strength": [0.5] * STEPS, "accuracy": [0.5] * STEPS} for name in FACTORS},
        },
        "viewpoint": {"familiar_error": 0.5},
        "multimnist": {"accuracy": 0.5, "drawing_error": None},
    },
    "attacked": {
        "images": 4, "clean_accuracy": 0.5, "norm": "linf", "logits": "strongest", "seed": 0,
        "attacks": [{"attack": name, "epsilon": 0.1, "accuracy": 0.25} for name in ("fgsm", "bim")],
        "sanity": [{"name": "x", "message": "x"}],
    },
    "environment": ENVIRONMENT,
}  # fmt: skip

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
    save_checkpoint(path, *small_model(), TrainingProgress(step=3))
    return path.read_bytes()


def write_run(folder: Path) -> Path:
    """A complete run directory with every file that commands read."""
    run = RunFolder(folder)
    save_weights(run.best, CONFIG.build_model())
    run.write_config(CONFIG)
    run.metrics_file.write_text(METRICS)
    for name, content in {"result": RUN_RESULT, "environment": ENVIRONMENT, "robustness": ROBUSTNESS}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


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
