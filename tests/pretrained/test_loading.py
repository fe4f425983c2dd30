"""Pretrained weights: the cards are correct, and a modified file is not loaded."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
import torch

import torchcaps
from torchcaps.data.base import as_floats
from torchcaps.errors import TorchcapsError
from torchcaps.pretrained import Card, find_card, list_pretrained, load_samples
from torchcaps.pretrained.loading import ROOT, load_pretrained, load_trained, open_trained, output_folder, read_card
from torchcaps.train import fit_run, new_run, resolve
from torchcaps.train.objective import correct

CARDS = list_pretrained()
bundle = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "bundle_weights.py"))["bundle"]
# Bytes of all weights together, in half precision: they are part of every installation, and should stay near a
# hundredth of the CPU build of PyTorch on disk (750 MB).
LARGEST = 9_000_000


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_network_loads_and_is_as_good_as_its_card_says(card: Card) -> None:
    model = torchcaps.create_model(card.model, pretrained=card.tag)
    assert not model.training
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == card.parameters
    samples = load_samples(card.data)
    assert samples is not None
    with torch.no_grad():
        right = correct(model(as_floats(samples.images)).scores, samples.labels).double().mean().item()
    assert card.test_images == 10_000
    # Forty images cannot tell more: three standard deviations, and half an image.
    error = (card.test_accuracy * (1 - card.test_accuracy) / len(samples.labels)) ** 0.5
    assert abs(right - card.test_accuracy) <= 3 * error + 0.0125


def test_what_is_shipped() -> None:
    names = {card.name for card in CARDS}
    assert names >= {f"{model}-mnist-laptop" for model in ("capsnet", "matrix-capsnet", "ar-capsnet", "convnet-avg")}
    assert sum(path.stat().st_size for path in ROOT.glob("*/weights.safetensors")) < LARGEST
    for card in CARDS:
        assert card.training["commit"]
        assert card.training["versions"]["torch"]
        assert card.selection_split == "validation"


@pytest.mark.parametrize("card", [card for card in CARDS if card.tag.endswith("-laptop")], ids=lambda card: card.name)
def test_weights_with_laptop_in_their_name_are_what_that_size_builds(card: Card) -> None:
    shipped = torchcaps.create_model(card.model, pretrained=card.tag)
    channels, height, width = shipped.image_shape
    built = torchcaps.create_model(card.model, size="laptop", image_size=(height, width), channels=channels)
    assert {name: value.shape for name, value in shipped.state_dict().items()} == {
        name: value.shape for name, value in built.state_dict().items()
    }


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(TorchcapsError, match="'mnist-labtop' is unknown: did you mean 'mnist-laptop'"):
        torchcaps.create_model("capsnet", pretrained="mnist-labtop")
    with pytest.raises(TorchcapsError, match="there are no pretrained weights for model 'lenet'"):
        torchcaps.create_model("lenet", pretrained="mnist-laptop")
    with pytest.raises(TorchcapsError, match="determine all settings except for classes, got channels"):
        torchcaps.create_model("capsnet", pretrained="mnist-laptop", channels=3)


def test_a_fresh_model_needs_no_weights() -> None:
    assert torchcaps.create_model("capsnet", size="laptop", classes=3).classes == 3


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    card = find_card("matrix-capsnet", "mnist-laptop")
    shutil.copytree(ROOT / card.name, tmp_path / card.name)
    load_pretrained(card, tmp_path)
    weights = tmp_path / card.name / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(TorchcapsError, match="does not have the hash in its card"):
        load_pretrained(card, tmp_path)
    weights.unlink()
    with pytest.raises(TorchcapsError, match="cannot be read: No such file"):
        load_pretrained(card, tmp_path)


def test_a_damaged_card_is_told(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"model": "capsnet"}')
    with pytest.raises(TorchcapsError, match="is not the card of a network: tag"):
        read_card(tmp_path / "card.json")


def test_bundling_a_run(tmp_path: Path) -> None:
    """From a run to a folder that loads, with the accuracy of what was stored."""
    settings = {"model": "convnet-avg", "data": "glyphs", "train_images": 300, "test_images": 200, "epochs": 1}
    run = new_run(resolve(**settings, options={"filters": 8}), tmp_path / "run")
    fit_run(run)
    card = bundle(run, "glyphs-tiny", tmp_path / "shipped")
    assert read_card(tmp_path / "shipped" / "convnet-avg-glyphs-tiny" / "card.json") == card
    assert (card.test_images, card.data, card.licence) == (200, "glyphs", "MIT")
    model, trained = load_pretrained(card, tmp_path / "shipped"), torchcaps.load(run.path)
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(
            model.state_dict()[name], value.half().float() if value.is_floating_point() else value
        )
    samples = load_samples("glyphs", tmp_path / "shipped")
    assert samples is not None
    assert samples.labels.bincount().tolist() == [4] * 10


def test_no_samples_for_unknown_or_strange_names() -> None:
    assert load_samples("no-such-data") is None
    assert load_samples("../mnist") is None


def test_output_of_a_command_does_not_hide_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evaluate NAME`` writes into ./NAME, and the next command must still find the weights."""
    monkeypatch.chdir(tmp_path)
    name = "convnet-avg-mnist-laptop"
    output_folder(open_trained(name), "evaluation").mkdir(parents=True)
    assert open_trained(name).path == ROOT / name
    assert load_trained(name).config.data == "mnist"
    run = new_run(resolve(model="convnet-avg", data="glyphs", options={"filters": 4}), tmp_path / "mine")
    (tmp_path / name).rename(tmp_path / "output")
    run.path.rename(tmp_path / name)
    assert open_trained(name).config().data == "glyphs", "a run of that name comes first"
