"""push_to_hub and from_pretrained with the Hub's own client and a local server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

import torchcaps
from tests.helpers.hub_server import Hub, running_hub
from torchcaps.errors import TorchcapsError

NAME = "matrix-capsnet-mnist-laptop"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        files = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + files)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield hub


def test_save_and_load(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torchcaps.push_to_hub(NAME, "somebody/digits") == f"{hub.address}/somebody/digits"
    assert {name for _, name in hub.files} == {"README.md", "config.json", "model.safetensors"}
    assert b'torchcaps.from_pretrained("somebody/digits")' in hub.files["somebody/digits", "README.md"]
    model = torchcaps.from_pretrained("somebody/digits")
    wanted = torchcaps.create_model("matrix-capsnet", pretrained="mnist-laptop")
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(model(images).scores, wanted(images).scores)
    (kept,) = (tmp_path / "cache").glob("models--somebody--digits/snapshots/*/model.safetensors")
    assert kept.is_symlink(), "the cache is as the Hub's client makes it"
    assert torch.equal(torchcaps.from_pretrained(kept.parent)(images).scores, wanted(images).scores)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert torch.equal(torchcaps.from_pretrained("somebody/digits")(images).scores, wanted(images).scores)


def test_a_file_that_claims_too_much_is_not_fetched(hub: Hub) -> None:
    torchcaps.push_to_hub(NAME, "somebody/digits")
    hub.claims["config.json"] = 2 << 20
    with pytest.raises(TorchcapsError, match=r"config\.json of somebody/digits has 2,097,152 bytes"):
        torchcaps.from_pretrained("somebody/digits")
    assert hub.sent == []


@pytest.mark.parametrize("name", ["somebody/nothing", "some body/digits", "a--b/c", "../etc"])
def test_a_repository_that_is_not_there(hub: Hub, name: str) -> None:
    with pytest.raises(TorchcapsError, match="of the Hub cannot be used"):
        torchcaps.from_pretrained(name)
