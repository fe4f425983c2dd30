"""From a folder of pictures to a service, as a user types it: the images move, and so does the working directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data import load_dataset

pytestmark = pytest.mark.process

PROGRAM = str(Path(sys.executable).with_name("torchcaps"))
SMALL = "capsnet:filters=8,types=2,hidden=[16, 16]"


def fill(root: Path, split: str, counts: dict[str, int]) -> None:
    """Digits in color on 64 to 200 pixels, most of them not square."""
    numbers = np.random.default_rng(0)
    batch = load_dataset("glyphs", split).batch(torch.arange(400))
    for label, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for number, image in enumerate(batch.images[batch.labels == label][:count]):
            ink, paper = numbers.uniform(0.6, 1, 3), numbers.uniform(0, 0.3, 3)
            pixels = paper + (ink - paper) * image[0].numpy()[..., None]
            width, height = numbers.integers(64, 201, 2)
            picture = Image.fromarray((255 * pixels).astype("u1")).resize((width, height))
            picture.save(root / name / f"{number}.{'jpg' if number % 2 else 'png'}")


def typed(folder: Path, *arguments: str) -> str:
    """What a command prints into a pipe, 80 columns wide."""
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=300, cwd=folder, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compare_move_evaluate_predict_explain_export_and_serve(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    fill(home / "photos", "train", {"zero": 30, "one": 12})
    fill(tmp_path / "fresh", "test", {"zero": 6, "one": 6})
    training = ("--epochs", "6", "--no-robustness", "--balance", "weights", "--augment", "strong", "--out", "runs")
    said = typed(home, "compare", SMALL, "--images", "photos,size=64x80", *training)
    assert "resized to 64x80 pixels in color (as requested)" in said
    assert "Backbone strided: 64x80 images become" in said
    for sheet in ("pictures.png", "augmented.png"):
        assert f"runs/{sheet}" in said
    sheets = [np.asarray(Image.open(home / "runs" / name)) for name in ("pictures.png", "augmented.png")]
    assert sheets[0].shape == sheets[1].shape
    assert not np.array_equal(sheets[0][40:], sheets[1][40:]), "below the title, the images are augmented"

    (home / "photos").rename(tmp_path / "moved")
    (run,) = home.glob("runs/*-seed0")
    said = typed(elsewhere, "evaluate", str(run), "--images", str(tmp_path / "fresh"))
    assert re.search(r"Accuracy \d+\.\d\d% on 12 images, expected calibration error", said)
    assert (run / "evaluation" / "images.png").is_file()

    squares = (np.indices((96, 120)) // 24).sum(0) % 2 * 255
    Image.fromarray(squares.astype("u1")).convert("RGB").save(elsewhere / "squares.png")
    found = json.loads(typed(elsewhere, "predict", str(run), str(tmp_path / "fresh"), "squares.png", "--json"))
    *good, odd = found["pictures"]
    assert odd["unusual"] is True
    assert not all(each["unusual"] for each in good)
    said = typed(elsewhere, "predict", str(run), "squares.png")
    assert "1 of 1 images are unlike those that the network was trained on" in said
    assert sorted(path.name for path in elsewhere.iterdir()) == ["squares.png"], "no file that nobody asked for"

    typed(elsewhere, "explain", str(run), "squares.png", "--only", "couplings", "--out", "why")
    assert (elsewhere / "why" / "index.html").is_file()
    assert "Written: model.onnx" in typed(elsewhere, "export", str(run), "--out", "model.onnx")

    call = [PROGRAM, "serve", str(run), "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=elsewhere) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert address
            with httpx.Client(base_url=address[0], transport=httpx.HTTPTransport(retries=3), timeout=60) as client:
                answer = client.post("/api/predict", files={"image": (elsewhere / "squares.png").read_bytes()}).json()
                assert client.get("/api/samples").status_code == 200, "the run keeps test images"
        finally:
            process.kill()
    assert answer["class_name"] == odd["answer"]
    assert answer["probability"] == pytest.approx(odd["probability"], abs=1e-5)
    assert answer["unusual"] is True
