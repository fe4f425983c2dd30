"""Detection by reconstruction: AUROC, foreign images, and an attack that knows the detector."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import torchcaps
from torchcaps.cli.main import main
from torchcaps.data import TensorImages
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.detection import auroc, default_sources, measure_detection, reconstructive_attack
from torchcaps.models import Model
from torchcaps.pretrained import load_samples
from torchcaps.train.run_images import reconstruction_errors


@pytest.fixture(scope="module")
def capsnet() -> Model:
    return torchcaps.create_model("capsnet", pretrained=True)


@pytest.fixture(scope="module")
def digits() -> TensorImages:
    samples = load_samples("mnist")
    assert samples is not None
    return TensorImages(samples.images[:30], samples.labels[:30], tuple("0123456789"))


def test_auroc_agrees_with_a_loop() -> None:
    foreign, usual = torch.randint(0, 9, (40,)).float(), torch.randint(0, 6, (30,)).float()
    pairs = [(a > b) + 0.5 * (a == b) for a in foreign.tolist() for b in usual.tolist()]
    assert auroc(foreign, usual) == pytest.approx(sum(pairs) / len(pairs))


def test_foreign_and_adversarial_images(capsnet: Model, digits: TensorImages) -> None:
    plain = torchcaps.create_model("convnet-avg", pretrained=True)
    found = measure_detection(capsnet, digits, ("glyphs", "noise", "fgsm"), epsilon=0.1, baseline=plain)
    assert found["test_images"] == 30
    by_name = {row["images"]: row for row in found["rows"]}
    assert by_name["noise"]["reconstruction"] > 0.99, "noise cannot be drawn by a capsule of a digit"
    assert by_name["noise"]["success"] is None
    assert by_name["noise"]["undetected"] < 0.05
    assert 0 <= by_name["glyphs"]["baseline_confidence"] <= 1
    assert by_name["fgsm"]["epsilon"] == 0.1
    json.dumps(found)


def test_the_attack_lowers_the_reconstruction_error(capsnet: Model, digits: TensorImages) -> None:
    batch = digits.batch(torch.arange(10))
    torch.manual_seed(0)
    attacked = reconstructive_attack(capsnet.eval(), batch.images, batch.labels, 0.3, steps=15)
    assert float((attacked - batch.images).abs().max()) <= 0.3 + 1e-6
    assert 0 <= float(attacked.min()) <= float(attacked.max()) <= 1
    with torch.no_grad():
        fooled = capsnet(attacked).scores.argmax(1) != batch.labels
        pgd = torchcaps.attacks.create_attack("pgd", steps=15)(capsnet, batch.images, batch.labels, epsilon=0.3).images
        known, unknown = (reconstruction_errors(capsnet, each, capsnet(each)) for each in (attacked, pgd))
    assert fooled.any()
    assert known is not None
    assert unknown is not None
    assert known[fooled].mean() < unknown[fooled].mean()


def test_mistakes(capsnet: Model, digits: TensorImages) -> None:
    with pytest.raises(TorchcapsError, match="detection needs a model with a decoder"):
        measure_detection(torchcaps.create_model("lenet", size="laptop"), digits, ("noise",))
    with pytest.raises(TorchcapsError, match="kind of images 'nose' is unknown: did you mean 'noise'"):
        measure_detection(capsnet, digits, ("nose",))
    assert default_sources("images:x", (3, 64, 64))[0] == "noise"
    with pytest.raises(TorchcapsError, match="write 8/255 instead of 8"):
        torchcaps.attacks.create_attack("fgsm")(capsnet, torch.rand(1, 1, 28, 28), torch.tensor([1]), epsilon=8)


def test_pixels_up_to_255_are_refused(capsnet: Model) -> None:
    with pytest.raises(TorchcapsError, match="got values of up to 255: divide by 255"):
        capsnet(torch.full((1, 1, 28, 28), 255.0))
    with pytest.raises(TorchcapsError, match=r"as floats, got torch.uint8: use images.float\(\) / 255"):
        capsnet(torch.zeros(1, 1, 28, 28, dtype=torch.uint8))


def test_shipped_weights_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], digits: TensorImages
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchcaps.evaluate.clean.test_images", lambda config: digits)
    monkeypatch.setattr("torchcaps.evaluate.detection.default_sources", lambda data, shape: ("noise",))
    call = ["torchcaps", "evaluate", "capsnet-mnist-laptop", "--detect", "--source", "convnet-avg-mnist-laptop"]
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert stopped.value.code == 0, said.err
    assert "Detection: AUROC" in said.out
    assert (tmp_path / "capsnet-mnist-laptop" / "evaluation" / "detection.json").is_file(), "not in the package"
