"""Exact parameter counts, computed by hand from the papers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch

from torchcaps.models import create_model
from torchcaps.reproduce.jobs import training_job
from torchcaps.reproduce.spec import PROFILES, Profile, list_papers, load_spec

CIFAR10: dict[str, Any] = {"image_size": 32, "channels": 3}


def count(name: str, **settings: Any) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in create_model(name, **{"size": "paper"} | settings).parameters())


@pytest.mark.parametrize(
    ("kernel", "capsnet", "average", "connected"),
    [
        (3, 16_111_424, 595_210, 49_486_610),
        (5, 14_378_816, 1_647_882, 35_445_522),
        (7, 13_500_224, 3_226_890, 25_215_762),
        (9, 13_475_648, 5_332_234, 18_797_330),
        (11, 14_305_088, 7_963_914, 16_190_226),
    ],
)
def test_kernels_of_gu2021_table_3(kernel: int, capsnet: int, average: int, connected: int) -> None:
    assert count("capsnet", image_size=40, kernel=kernel) == capsnet
    assert count("convnet-avg", image_size=40, kernel=kernel) == average
    assert count("convnet-fc", image_size=40, kernel=kernel) == connected


@pytest.mark.parametrize(("pixels", "capsnet"), [(28, 8_215_568), (36, 11_361_808), (40, 13_475_648)])
def test_networks_of_gu2021_as_large_as_capsnet(pixels: int, capsnet: int) -> None:
    for name in ("capsnet-nor", "convnet-cr", "convnet-cr-sf"):
        assert count(name, image_size=pixels) == capsnet
    assert count("convnet-r", image_size=pixels) == capsnet + 160 * 10 + 10
    large_kernel = {28: 8_214_704, 36: 11_357_247, 40: 13_490_609}[pixels]
    assert count("convnet-fc-lk", image_size=pixels) == large_kernel
    assert abs(large_kernel / capsnet - 1) < 0.02


def test_aff_capsnet() -> None:
    assert count("aff-capsnet", image_size=40) == 7_578_688
    assert count("aff-capsnet-dr", image_size=40) == 7_578_688


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("g-capsnet-fc", {"decoder": "none"}, 6_815_744),
        ("g-capsnet-fc", {}, 8_227_088),
        ("g-capsnet-conv", {"decoder": "none"}, 5_525_504),
        ("g-capsnet-conv", {}, 6_895_888),
        ("g-capsnet-fc-cifar10", CIFAR10, 2_674_176),
        ("g-capsnet-conv-cifar10", CIFAR10, 2_674_176),
        ("g-capsnet-multi", CIFAR10, 751_008),
        ("cnn-chen2019", CIFAR10, 9_737_226),
        ("lenet", {}, 431_080),
    ],
)
def test_chen2019(name: str, settings: dict[str, Any], expected: int) -> None:
    assert count(name, **settings) == expected


@pytest.mark.parametrize(
    ("layers", "size", "expected"),
    [
        (0, 16, 7_293_152),
        (0, 32, 12_637_312),
        (1, 16, 3_519_840),
        (1, 32, 7_716_224),
        (2, 16, 3_678_688),
        (2, 32, 8_332_928),
        (3, 16, 3_837_536),
        (3, 32, 8_949_632),
        (4, 16, 3_996_384),
        (4, 32, 9_566_336),
    ],
)
def test_choi2019_on_cifar10(layers: int, size: int, expected: int) -> None:
    assert count("ar-capsnet-cifar10", layers=layers, capsule_size=size, **CIFAR10) == expected


def test_choi2019_on_digits() -> None:
    assert count("ar-capsnet") == 5_312_528
    assert count("ar-capsnet-affnist", image_size=40) == 3_500_832


def test_yang2021_adds_no_parameter_to_capsnet() -> None:
    assert count("capsnet-l1") == count("capsnet-l2") == 8_215_568
    wide = count("capsnet", types=64, decoder="none", **CIFAR10)
    assert count("capsnet-l1-cifar10", **CIFAR10) == count("capsnet-l2-cifar10", **CIFAR10) == wide


def test_mazzia2021_has_the_paper_s_parameters() -> None:
    convolutions = (25 * 1 * 32 + 32) + (9 * 32 * 64 + 64) + (9 * 64 * 64 + 64) + (9 * 64 * 128 + 128)
    normalization = 2 * (32 + 64 + 64 + 128)
    capsules = (81 * 128 + 128) + 16 * 10 * 8 * 16 + 16 * 10
    assert convolutions + normalization + capsules == 161_824
    assert count("efficient-capsnet", decoder="none") == 161_824


def test_hahn2019_differs_in_the_head_only() -> None:
    trunk = 9 * 3 * 16 + 2 * 16 + 6 * (9 * 16 * 16 + 2 * 16)
    trunk += 9 * 16 * 32 + 5 * 9 * 32 * 32 + 6 * 2 * 32 + 9 * 32 * 64 + 5 * 9 * 64 * 64 + 6 * 2 * 64
    pose, activation = 9 * 64 * 512 + 2 * 512, 9 * 64 * 32 + 2 * 32
    children = 8 * 8 * 32
    assert count("resnet20", **CIFAR10) == count("resnet20", head="max", **CIFAR10) == trunk + 650
    assert count("sr-capsnet", **CIFAR10) == trunk + pose + activation + children * 10 * (16 + 1)
    assert count("sr-capsnet", routing="dynamic", **CIFAR10) == trunk + pose + children * 16 * 16 * 10
    assert count("sr-capsnet", routing="em", **CIFAR10) == trunk + pose + activation + children * 16 * 10 + 20
    assert count("resnet20", head="fc", **CIFAR10) == trunk + pose + 8 * 8 * 512 * 10 + 10


def test_ribeiro2020_has_the_release_s_parameters_without_its_offsets() -> None:
    smallnorb = {"image_size": 32, "channels": 2, "classes": 5}
    first = 25 * 2 * 64 + 2 * 64
    three = first + 64 * 8 * 17 + 4 * 8 + 9 * 8 * 16 * 16 + 9 * 16 * 16 * 16 + 16 * 5 * 16
    assert count("vb-capsnet", **smallnorb) == three == 68_640
    assert count("vb-capsnet-tiny", **smallnorb) == first + 9 * 64 * 16 * 17 + 4 * 16 + 36 * 16 * 16 * 5 == 206_144


def test_tsai2020_has_the_paper_s_parameters() -> None:
    """1.83M with the residual network, 560K with one convolution; a bias that all classes share has no effect."""
    residual = 9 * 3 * 64 + 2 * 64 + 3 * (2 * 9 * 64 * 64 + 4 * 64)
    residual += 9 * 64 * 128 + 9 * 128 * 128 + 64 * 128 + 6 * 128 + 3 * (2 * 9 * 128 * 128 + 4 * 128)
    capsules = 2 * (9 * 32 * 32 * 16 + 32) + 25 * 32 * 10 * 16 + 32 + 32 + 16
    assert count("inverted-capsnet", **CIFAR10) == residual + 128 * 512 + capsules == 1_828_816
    assert count("inverted-capsnet-560k", **CIFAR10) == 28 * 256 + 256 * 512 + capsules == 561_296


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("paper", list_papers())
def test_rows_of_a_table_keep_the_ratio_of_their_parameters(paper: str, profile: Profile) -> None:
    """No row of a table may be handicapped: in every profile, ratios are within 20 % of those in the paper's size."""
    spec = load_spec(paper)

    def parameters(training: str, profile: Profile) -> int:
        with torch.device("meta"):
            model = training_job(spec, training, profile, seed=0).config.build_model()
        return sum(parameter.numel() for parameter in model.parameters())

    wrong = []
    for table, found in spec.tables.items():
        columns: dict[str, dict[str, tuple[int, int]]] = {}
        for cell in found.cells.values():
            if cell.measure == "parameters" and cell.training:
                both = parameters(cell.training, profile), parameters(cell.training, "paper")
                columns.setdefault(cell.column, {})[cell.row] = both
        for column, rows in columns.items():
            for one, other in combinations(rows, 2):
                ratio = (rows[one][0] / rows[other][0]) / (rows[one][1] / rows[other][1])
                if max(ratio, 1 / ratio) > 1.2:
                    wrong.append(f"{table}, {column}: {one} / {other} is {ratio:.2f} times that of the paper")
    assert not wrong, "\n".join(wrong)
