"""Save and load models in the Hub's format; the model card agrees with the result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import torchcaps
from tests.helpers import tiny_model  # noqa: F401  (registers the model)
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.files import read_json
from torchcaps.pretrained import list_pretrained
from torchcaps.pretrained.loading import file_hash
from torchcaps.train import RunFolder, fit_run, new_run, resolve


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    settings = {"model": "tiny", "data": "glyphs", "train_images": 200, "test_images": 100, "epochs": 1}
    run = new_run(resolve(**settings), tmp_path_factory.mktemp("runs") / "first")
    fit_run(run)
    evaluate_run(run)
    return run


def test_save_and_load(run: RunFolder, tmp_path: Path) -> None:
    folder = torchcaps.save_pretrained(run.path, tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    model, wanted = torchcaps.from_pretrained(folder), torchcaps.load(run.path)
    assert not model.training
    assert model.class_names == wanted.class_names
    images = torch.rand(3, 1, 28, 28)
    assert torch.equal(model(images).scores, wanted(images).scores)
    assert load_file(folder / "model.safetensors").keys() == wanted.state_dict().keys(), "names as PyTorch has them"
    config = read_json(folder / "config.json")
    assert config["library_name"] == "torchcaps"
    assert config["torchcaps_version"] == torchcaps.__version__
    assert config["preprocessing"].startswith("pixels in [0, 1]")


def test_the_card_is_made_from_the_result_file(run: RunFolder, tmp_path: Path) -> None:
    folder = torchcaps.save_pretrained(run.path, tmp_path / "model", repository="somebody/first")
    card = ModelCard.load(folder / "README.md")  # the Hub's own reader
    assert card.data.library_name == "torchcaps"
    assert card.data.pipeline_tag == "image-classification"
    (measured,) = card.data.eval_results
    result = read_json(run.result_file)
    assert measured.metric_value == result["test_accuracy"]
    assert measured.dataset_name == "glyphs"
    assert f"correct) | {result['test_accuracy']:.2%} |" in card.text
    assert 'torchcaps.from_pretrained("somebody/first")' in card.text
    assert file_hash(folder / "model.safetensors") in card.text
    assert result["environment"]["versions"]["torch"] in card.text


def test_the_card_of_a_run_that_was_not_tested(run: RunFolder, tmp_path: Path) -> None:
    result = run.result_file.read_bytes()
    run.result_file.unlink()
    folder = torchcaps.save_pretrained(run.path, tmp_path)
    run.result_file.write_bytes(result)
    card = ModelCard.load(folder / "README.md")
    assert card.data.eval_results is None
    assert "was not tested" in card.text


def test_paths_of_this_machine_are_not_published(run: RunFolder, tmp_path: Path) -> None:
    settings = run.config().model_dump(mode="json") | {"data": f"images:{tmp_path}/photos,size=28"}
    own = RunFolder(tmp_path / "own")
    (own.path / "checkpoints").mkdir(parents=True)
    own.config_file.write_text(yaml.safe_dump(settings))
    own.best.write_bytes(run.best.read_bytes())
    folder = torchcaps.save_pretrained(own.path, tmp_path / "model")
    for name in ("README.md", "config.json"):
        assert str(tmp_path) not in (folder / name).read_text()
    assert json.loads((folder / "config.json").read_text())["data"] == "images:photos,size=28"
    assert "The training was not recorded" in (folder / "README.md").read_text()


@pytest.mark.parametrize("card", list_pretrained(), ids=lambda card: card.name)
def test_shipped_weights_go_there_and_back(card: torchcaps.pretrained.Card, tmp_path: Path) -> None:
    folder = torchcaps.save_pretrained(card.name, tmp_path)
    model, wanted = torchcaps.from_pretrained(folder), torchcaps.create_model(card.model, pretrained=card.tag)
    for name, value in wanted.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert ModelCard.load(folder / "README.md").data.eval_results[0].metric_value == card.test_accuracy


def test_mistakes_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TorchcapsError, match=r"has no config\.json, so it is not a model directory"):
        torchcaps.from_pretrained(tmp_path)
    with pytest.raises(TorchcapsError, match="is neither a directory nor a repository of the Hub, such as owner/name"):
        torchcaps.from_pretrained("nowhere")
    monkeypatch.setattr("torchcaps.errors.find_spec", lambda name: None)
    for use in (lambda: torchcaps.from_pretrained("a/b"), lambda: torchcaps.push_to_hub(tmp_path, "a/b")):
        with pytest.raises(TorchcapsError, match="the Hub needs huggingface_hub: "):
            use()


def test_a_model_can_be_saved(tmp_path: Path) -> None:
    model = torchcaps.create_model(
        "capsnet", size="laptop", image_size=(30, 64), channels=3, classes=3, filters=4
    ).eval()
    torchcaps.save_pretrained(model, tmp_path / "saved")
    again = torchcaps.from_pretrained(tmp_path / "saved")
    images = torch.rand(2, 3, 30, 64)
    assert torch.equal(again(images).scores, model(images).scores)
    own = torchcaps.create_model(
        "capsnet", size="laptop", image_size=64, channels=3, backbone=torch.nn.Conv2d(3, 4, 3, 2)
    )
    with pytest.raises(TorchcapsError, match="build it by name, and a backbone by name too"):
        torchcaps.save_pretrained(own, tmp_path / "other")
