"""Measures of routing: static couplings, starved parents, coupling entropy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.small_runs import measured, small_run
from torchcaps.analysis import coupling_entropy
from torchcaps.analysis.dynamics import measure_dynamics
from torchcaps.analysis.explanation import sample_images
from torchcaps.analysis.inspection import inspect_layers
from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.train import RunFolder, load

SMALL = {"filters": 8, "types": [2, 3, 3], "routing": "em"}
COUNT = 23  # more than a batch, the last one smaller


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("runs") / "deep", model="vb-capsnet", options=SMALL, learning_rate=0.01)


def images(run: RunFolder) -> torch.Tensor:
    return sample_images(load(run.path), load_dataset("glyphs", "test"), COUNT).images


@pytest.mark.parametrize("layer", [0, 2])
def test_static_and_starved_are_those_of_the_layer_in_percent(run: RunFolder, layer: int) -> None:
    with torch.no_grad():
        wanted = measure_dynamics(load(run.path), images(run))[layer]
    static = measured("static-couplings", run, images=COUNT, layer=layer)
    starved = measured("starved-parents", run, images=COUNT, layer=layer)
    assert static.value == pytest.approx(100 * wanted.static)
    assert starved.value == pytest.approx(100 * wanted.starved)
    assert static.details["name"] == wanted.name
    assert static.images is None, "no share of images"


def test_entropy_is_the_mean_over_all_images_of_the_last_iteration(tmp_path: Path) -> None:
    small = {"filters": 8, "types": 2, "hidden": [16, 16]}
    run = small_run(tmp_path / "capsnet", model="capsnet", options=small, learning_rate=0.05)
    with torch.no_grad():
        _, layers = inspect_layers(load(run.path), images(run))
    wanted = coupling_entropy(layers[0])[-1]
    found = measured("coupling-entropy", run, images=COUNT)
    assert found.value == pytest.approx(100 * wanted.relative, rel=1e-6)
    assert found.details == {"over": wanted.over, "images": COUNT}


def test_layers_that_do_not_exist_and_equal_couplings_are_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(TorchcapsError, match="the network has 3 capsule layers, counted from 0; got layer 3"):
        measured("starved-parents", run, images=2, layer=3)
    uniform = {"filters": 8, "types": 2, "hidden": [16, 16], "routing": "uniform"}
    equal = small_run(tmp_path / "uniform", model="capsnet", options=uniform)
    with pytest.raises(TorchcapsError, match=r"all couplings of .* are equal"):
        measured("static-couplings", equal, images=4)
