"""Sizes in file headers are checked before memory is allocated."""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from tests.fuzz.good import small_model
from torchcaps.data.io.pictures import read_picture
from torchcaps.errors import TorchcapsError
from torchcaps.files import MOST_TEXT, read_json
from torchcaps.train import read_metrics, resolve
from torchcaps.train.checkpoint import load_checkpoint, load_weights

TERABYTE = 1 << 40


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Limit the memory of the tests to half a gigabyte."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def claim(path: Path, tensors: dict[str, list[int]], *, sparse: bool, metadata: dict[str, str] | None = None) -> Path:
    """A safetensors file whose header claims tensors of these shapes; sparse: the file is as long as it claims."""
    header: dict[str, object] = {"__metadata__": metadata or {}}
    end = 0
    for name, shape in tensors.items():
        size = 4 * int(torch.tensor(shape).prod()) if shape else 4
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    if sparse:
        with path.open("r+b") as file:
            file.truncate(8 + len(text) + end)  # a hole: it takes no space on the disk
    return path


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    "tensors",
    [
        {"model.weight": [TERABYTE // 4], "model.bias": [2]},
        {"model.weight": [2, 3], "model.bias": [2], "model.more": [TERABYTE // 4]},
        {"model.weight": [1 << 30], "model.bias": [2]},
    ],
)
def test_weights_that_claim_a_terabyte(tmp_path: Path, tensors: dict[str, list[int]], sparse: bool) -> None:
    path = claim(tmp_path / "x.safetensors", tensors, sparse=sparse)
    with pytest.raises(TorchcapsError, match=r"does not fit this model|damaged or truncated"):
        load_weights(path, nn.Linear(3, 2))


@pytest.mark.parametrize("claimed", [TERABYTE, 4 << 30])  # more than can be mapped; more than may be read
def test_an_optimizer_that_claims_much(tmp_path: Path, claimed: int) -> None:
    tensors = {"model.weight": [2, 3], "model.bias": [2], "optimizer.0.exp_avg": [claimed // 4]}
    path = claim(tmp_path / "x.safetensors", tensors, sparse=True, metadata={"progress": "{}"})
    with pytest.raises(TorchcapsError, match=r"does not fit this optimizer|damaged or truncated"):
        load_checkpoint(path, *small_model())


@pytest.mark.parametrize(
    "state", ["optimizer.0.evil", "optimizer.7.exp_avg", "optimizer.99999999999999.x", "optimizer."]
)
def test_an_optimizer_with_a_state_that_nobody_wrote(tmp_path: Path, state: str) -> None:
    tensors = {"model.weight": [2, 3], "model.bias": [2], state: [2, 3]}
    path = claim(tmp_path / "x.safetensors", tensors, sparse=True, metadata={"progress": "{}"})
    with pytest.raises(TorchcapsError, match="does not fit this optimizer"):
        load_checkpoint(path, *small_model())


@pytest.mark.parametrize("length", [1 << 63, TERABYTE, (1 << 64) - 1])
def test_a_header_that_claims_to_be_huge(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(TorchcapsError, match="damaged or truncated"):
        load_weights(path, nn.Linear(3, 2))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "capsnet", "options": {"filters": 10**9}},
        {"model": "convnet-fc", "options": {"hidden": [10**8, 10**8]}},
        {"model": "capsnet", "options": {"types": 10**8}},
        {"model": "capsnet", "options": {"filters": -1}},
        {"model": "capsnet", "options": {"filters": "many"}},
        {"model": "capsnet", "options": {"routing_options": {"iterations": "x"}}},
        {"model": "matrix-capsnet", "options": {"channels": {}}},
    ],
)
def test_settings_of_a_model_that_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(TorchcapsError):
        resolve(**settings, data="glyphs").build_model()


def test_a_text_without_end(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(TERABYTE)
    for read in (read_json, read_metrics):
        with pytest.raises(TorchcapsError, match=f"holds more than {MOST_TEXT:,} bytes"):
            read(path)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, '{"a":' * 100_000, "nul", "\x00", "\ud800"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(TorchcapsError):
        read_json(path)


def test_metrics_that_no_csv_reader_takes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    good = "step,epoch,split,loss,accuracy,learning_rate,images_per_second,seconds\n1,1,train,1,1,1,1,1\n"
    path.write_text(good + '"' + "x" * 200_000 + '"\n\0\n9' + "9" * 5000 + ",1,train,1,1,1,1,1\n")
    assert [line.step for line in read_metrics(path)] == [1]


def test_a_picture_that_claims_to_be_huge(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("L", (8, 8)).save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    path.write_bytes(content)
    assert isinstance(read_picture(path, boundary=tmp_path, size=8, grey=True), str)
