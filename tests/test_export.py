"""torchcaps export: metadata of the file, and no file is left behind after a failure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import torchcaps
from tests.conftest import Command
from tests.helpers import tiny_model  # noqa: F401  (registers the model)
from torchcaps import export
from torchcaps.errors import TorchcapsError
from torchcaps.export import DETAILS, OnnxInference, export_model, write_onnx
from torchcaps.models import create_model
from torchcaps.pretrained.loading import load_trained
from torchcaps.train import fit_run, new_run, resolve


def test_a_run_is_exported_to_onnx_with_metadata(tmp_path: Path) -> None:
    run = new_run(resolve(model="tiny", data="glyphs", train_images=60, epochs=1), tmp_path / "run")
    fit_run(run)
    exported = export_model(run.path)
    assert exported.path == run.path / "model.onnx"
    assert exported.difference <= 1e-5
    session = onnxruntime.InferenceSession(str(exported.path), providers=["CPUExecutionProvider"])
    details = session.get_modelmeta().custom_metadata_map
    assert json.loads(details["classes"]) == list("0123456789")
    assert details["model"] == "tiny"
    assert details["data"] == "glyphs"
    assert details["torchcaps_version"] == torchcaps.__version__
    assert details["preprocessing"].startswith("pixels in [0, 1]")
    (taken,) = session.get_inputs()
    assert taken.name == "images"
    assert taken.shape[1:] == [1, 28, 28]
    assert [each.shape[0] for each in (taken, *session.get_outputs())] == ["batch"] * 3, "the number of images is open"
    assert [each.name for each in session.get_outputs()] == ["probabilities", "scores"]
    images = torch.rand(5, 1, 28, 28)
    with torch.no_grad():
        wanted = torchcaps.load(run.path)(images).scores.numpy()
    assert abs(session.run(["scores"], {"images": images.numpy()})[0] - wanted).max() < 1e-5


def test_pretrained_weights_are_exported_with_torch_export(tmp_path: Path) -> None:
    exported = export_model("capsnet-mnist-laptop", tmp_path / "m.pt2", to="torch")
    extra = {DETAILS: ""}
    program = torch.export.load(exported.path, extra_files=extra)
    assert json.loads(extra[DETAILS]) == exported.details
    images = torch.rand(4, 1, 28, 28)
    model = load_trained("capsnet-mnist-laptop").model
    with torch.no_grad():
        _, scores, pose = program.module()(images)
        wanted = model(images)
    torch.testing.assert_close(scores, wanted.scores, rtol=0, atol=1e-5)
    torch.testing.assert_close(pose, wanted.pose, rtol=1e-3, atol=1e-4)


def test_the_documented_preprocessing_gives_the_probabilities_of_predict(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def read_image" in each)
    scope: dict[str, Any] = {}
    exec(block, scope)
    ramp = torch.linspace(0, 255, 300).byte()
    color = torch.stack([ramp.expand(200, -1), ramp.flip(0).expand(200, -1), ramp.roll(99).expand(200, -1)], 2)
    photo = Image.fromarray(color.numpy())
    files = [tmp_path / name for name in ("a.jpg", "b.png", "c.png", "d.jpg")]
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was turned
    photo.save(files[0])
    photo.convert("L").rotate(30).save(files[1])
    photo.resize((28, 20)).save(files[2])
    photo.save(files[3], exif=turned)
    exported = export_model("convnet-avg-mnist-laptop", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(exported.path), providers=["CPUExecutionProvider"])
    images = np.stack([scope["read_image"](file, (1, 28, 28)) for file in files])
    found = session.run(["probabilities"], {"images": images})[0]
    expected = [each.probabilities for each in torchcaps.predict("convnet-avg-mnist-laptop", files).answers]
    assert abs(found - np.array(expected)).max() < 1e-5


def test_exporting_leaves_the_model_unchanged(tmp_path: Path) -> None:
    model = torchcaps.create_model("lenet", size="laptop", classes=3).train()
    exported = export_model(model, tmp_path / "m.pt2", to="torch")
    assert model.training
    assert json.loads(exported.details["classes"]) == ["0", "1", "2"]
    assert exported.details["model"] == "LeNet"


def test_a_file_with_wrong_output_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = export.FORMATS["torch"]

    def wrong(*arguments: object) -> object:
        answer = right.write(*arguments)  # type: ignore[arg-type]
        return lambda images: answer(images) + 2e-5

    monkeypatch.setitem(export.FORMATS, "torch", export.ExportFormat(".pt2", wrong))  # type: ignore[arg-type]
    (tmp_path / "m.pt2").write_text("the one before")
    with pytest.raises(TorchcapsError, match=r"differ from the model's by 2\.0e-05, more than 1e-05"):
        export_model(torchcaps.create_model("lenet", size="laptop"), tmp_path / "m.pt2", to="torch")
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]
    assert (tmp_path / "m.pt2").read_text() == "the one before"


def test_mistakes_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TorchcapsError, match="format 'onx' is unknown: did you mean 'onnx'"):
        export_model("capsnet-mnist-laptop", to="onx")
    with pytest.raises(TorchcapsError, match="'capsnet-mnist' is unknown: did you mean 'capsnet-mnist-laptop'"):
        export_model("capsnet-mnist")
    with pytest.raises(TorchcapsError, match=r"has no config\.yaml, so it is not a run"):
        export_model(tmp_path)
    monkeypatch.setattr("torchcaps.errors.find_spec", lambda name: None)
    with pytest.raises(TorchcapsError, match=r"needs onnx and .*: run pip install -e '\.\[export\]'"):
        export_model(torchcaps.create_model("lenet", size="laptop"), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command(torchcaps_command: Command, tmp_path: Path) -> None:
    done = torchcaps_command("export", "convnet-avg-mnist-laptop", "--to", "onnx")
    assert done.returncode == 0, done.stderr
    assert "Written: convnet-avg-mnist-laptop.onnx" in done.stdout
    assert (tmp_path / "convnet-avg-mnist-laptop.onnx").stat().st_size > 100_000
    slow = "exporting to convnet-avg-mnist-laptop.onnx: after "  # only on a busy machine
    assert [line for line in done.stderr.splitlines() if not line.startswith(slow)] == []


def test_predictions_by_onnxruntime_are_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is exported once for the same weights, again for others and if it is damaged, and old ones go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(export, "MOST_CACHED", 2)
    exported = []
    monkeypatch.setattr(export, "write_onnx", lambda *given: exported.append(given) or write_onnx(*given))
    model = create_model("capsnet", size="laptop", filters=16, types=4, hidden=(16, 16)).eval()
    images = torch.rand(1, 1, 28, 28)

    def check(count: int) -> None:
        found, expected = OnnxInference(model)(images), model(images)
        assert len(exported) == count
        torch.testing.assert_close(found.scores, expected.scores.detach(), rtol=0, atol=1e-5)
        torch.testing.assert_close(found.pose, expected.pose.detach(), rtol=0, atol=1e-5)
        probabilities = expected.logits.detach().softmax(1)
        torch.testing.assert_close(found.logits.softmax(1), probabilities, rtol=0, atol=1e-5)

    check(1)
    check(1)
    (file,) = (tmp_path / "torchcaps" / "onnx").glob("*.onnx")
    file.write_bytes(b"damaged")
    check(2)
    for count in (3, 4):
        torch.nn.init.normal_(next(model.parameters()), std=0.1)
        check(count)
    assert len(list(file.parent.glob("*.onnx"))) == 2
    assert not file.exists()
    with pytest.raises(TorchcapsError, match="finite pixels"):
        OnnxInference(model)(images * torch.nan)
