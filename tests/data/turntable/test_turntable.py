"""Solids, sphere tracing, and the turntable dataset."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import data_loops
from torchcaps.data import TensorImages, datasets, load_dataset
from torchcaps.data.datasets.viewpoints import CATEGORIES, FAMILIAR, INSTANCES, halve, one_camera, with_viewpoints
from torchcaps.data.turntable import open_turntable
from torchcaps.data.turntable.solids import Block, Limb, Primitive, Solid, Wheel, stand_up
from torchcaps.data.turntable.toys import make_toy
from torchcaps.data.turntable.tracing import DISTANCE, HALF_VIEW, LIGHTS, Light, camera_rays, direction, render

PARTS: dict[str, Primitive] = {
    "ball": Limb((0.1, 0, 0), (0.1, 0, 0), 0.4, 0.4),
    "rod": Limb((-0.5, 0.1, 0), (0.5, -0.2, 0.3), 0.2, 0.2),
    "tapered rod": Limb((-0.5, 0, 0), (0.5, 0, 0.2), 0.3, 0.15),
    "cone": Limb((-0.1, 0, -0.2), (0.1, 0, 0.2), 0.4, 0.1),
    "box": Block((0.1, 0, -0.1), (0.5, 0.3, 0.2), 0.05),
    "tapered box": Block((0, 0, 0), (0.5, 0.3, 0.3), 0.05, taper=0.5, slide=0.2),
    "wing": Block((0, 0, 0), (0.2, 0.6, 0.06), 0.02, sweep=0.6),
    "wheel": Wheel((0, 0.1, 0), 0.5, 0.2),
}


def at(part: Primitive | Solid, *points: tuple[float, float, float]) -> list[float]:
    x, y, z = np.array(points, dtype=np.float32).T
    return part.distance(x, y, z).tolist()


def test_exact_distances() -> None:
    assert at(PARTS["ball"], (1, 0, 0), (0.1, 0, 0)) == pytest.approx([0.5, -0.4])
    assert at(PARTS["box"], (0.1, 0, 1), (1.1, 0, -0.1), (0.1, 0, -0.1)) == pytest.approx([0.9, 0.5, -0.2])
    assert at(PARTS["wheel"], (1, 0.1, 0), (0, 1.0, 0)) == pytest.approx([0.5, 0.7])
    assert at(PARTS["rod"], (0.5, -0.2, 1.3)) == pytest.approx([0.8])


@pytest.mark.parametrize("name", PARTS)
@settings(max_examples=60, deadline=None)
@given(point=st.tuples(*[st.floats(-1.4, 1.4)] * 3))
def test_no_part_claims_to_be_farther_than_it_is(name: str, point: tuple[float, float, float]) -> None:
    """Sphere tracing misses a surface if distances are overestimated: compare with a search over a grid."""
    part, steps = PARTS[name], 17
    grid = np.linspace(-1, 1, steps, dtype=np.float32)
    x, y, z = np.meshgrid(grid, grid, grid, indexing="ij")
    solid = part.distance(x, y, z) <= 0
    position = {float(value): number for number, value in enumerate(grid)}
    near = {tuple(index) for index in np.argwhere(solid).tolist()}
    reference_grid = [-1 + 2 * number / (steps - 1) for number in range(steps)]

    def inside(a: float, b: float, c: float) -> bool:
        return (position[a], position[b], position[c]) in near

    assert set(position) == set(reference_grid)
    assert at(part, point)[0] <= data_loops.nearest_surface(inside, point, 1.0, steps) + 1e-4


@pytest.mark.parametrize("category", range(5))
def test_no_toy_claims_to_be_farther_than_it_is(category: int) -> None:
    """Between two points the distance changes by no more than the way between them, for every part of every toy."""
    numbers = np.random.default_rng(0)
    first = numbers.uniform(-1.5, 1.5, (3, 20_000)).astype(np.float32)
    second = first + (numbers.normal(size=first.shape) * numbers.uniform(0.01, 0.3, 20_000)).astype(np.float32)
    way = np.linalg.norm(first - second, axis=0)
    for instance in range(10):
        for part in make_toy(category, instance, seed=0).parts:
            change = np.abs(part.distance(*first) - part.distance(*second))
            assert (change - way).max() < 1e-4, part


def test_mirrored_part_is_there_twice() -> None:
    solid = Solid([Limb((0, 0.5, 0), (0, 0.5, 0), 0.1, 0.1, mirrored=True)])
    assert at(solid, (0, 0.5, 0), (0, -0.5, 0), (0, 0, 0)) == pytest.approx([-0.1, -0.1, 0.4])


@pytest.mark.parametrize("category", range(5))
@pytest.mark.parametrize("instance", [0, 4, 9])
def test_toys_stand_on_the_table_inside_their_box(category: int, instance: int) -> None:
    toy = make_toy(category, instance, seed=0)
    long, wide, high = toy.reach
    axes = [np.linspace(-1.3, 1.3, 60), np.linspace(-1.3, 1.3, 60), np.linspace(-0.3, 2.3, 60)]
    x, y, z = (grid.ravel().astype(np.float32) for grid in np.meshgrid(*axes, indexing="ij"))
    solid = toy.distance(x, y, z) < 0
    assert solid.sum() > 50
    assert np.abs(x[solid]).max() <= long
    assert np.abs(y[solid]).max() <= wide
    assert z[solid].max() <= high
    assert -0.06 < z[solid].min() < 0.12
    assert make_toy(category, instance, seed=0) == toy
    assert make_toy(category, instance, seed=1) != toy


def test_ball_is_drawn_where_geometry_says() -> None:
    """A ball of radius 0.5 seen from 45 degrees: compare with the ray equation, solved by hand."""
    ball = stand_up([Limb((0, 0, 0), (0, 0, 0), 0.5, 0.5)])
    size = 64
    light = Light(0, 60, 0.5, 0.5)
    image = render(ball, [0.0], [45.0], [light], size)[0, 0]
    origin, rays = camera_rays(ball.reach[2] / 2, 0.0, 45.0, size)
    centre, radius = (
        np.array([0, 0, 0.5 * ball.scale - ball.offset[2] * ball.scale - 0.5 * ball.scale]),
        0.5 * ball.scale,
    )
    toward = direction(0, 60)
    wrong = 0
    for number in range(size * size):
        ray, row, column = rays[:, number].astype(float), *divmod(number, size)
        half = float(ray @ (origin - centre))
        inside = half * half - (float((origin - centre) @ (origin - centre)) - radius**2)
        if inside < 0:
            continue
        normal = (origin + ray * (-half - math.sqrt(inside)) - centre) / radius
        slant = max(0.0, float(normal @ toward))
        expected = math.sqrt(0.5 * (0.5 * (0.75 + 0.25 * normal[2]) + 0.5 * slant))
        wrong += abs(image[row, column] - expected) > 0.02
    assert np.count_nonzero(image < 0.9) > 500
    assert wrong < 0.04 * size * size * math.pi * (radius / (2 * HALF_VIEW)) ** 2 * 4


def test_shadow_lies_away_from_the_light() -> None:
    pole = stand_up([Limb((0, 0, 0), (0, 0, 1), 0.08, 0.08)])
    for azimuth in (0.0, 130.0):
        for side, sign in ((90.0, -1), (-90.0, 1)):  # a light on the left throws the shadow to the right
            image = render(pole, [azimuth], [50.0], [Light(side, 40, 0.9, 0.1)], 64)[0, 0]
            table = image[-8, 32 + sign * 24], image[-8, 32 - sign * 24]
            dark = image < 0.5
            dark[:, 28:36] = False  # the pole itself
            columns = np.nonzero(dark)[1]
            assert columns.size > 20
            assert np.all((columns - 32) * -sign < 0), (azimuth, side, table)


def test_cameras_look_at_the_middle_from_the_right_distance() -> None:
    origin, rays = camera_rays(0.3, 120, 40, 2)
    assert np.linalg.norm(origin - [0, 0, 0.3]) == pytest.approx(DISTANCE, rel=1e-5)
    mean = rays.mean(axis=1)
    assert np.allclose(mean / np.linalg.norm(mean), -direction(120, 40), atol=1e-5)


def test_views_are_drawn_alike_alone_or_together() -> None:
    toy = make_toy(3, 1, 0)
    together = render(toy, [0.0, 100.0], [30.0, 60.0], list(LIGHTS[:2]), 24)
    alone = render(toy, [100.0], [60.0], [LIGHTS[1]], 24)
    assert np.array_equal(together[1, 1], alone[0, 0])


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawings")


@pytest.fixture
def shared_cache(drawings: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is generated once for all tests that only read it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(drawings))
    return drawings


def test_set_is_complete_deterministic_and_cached(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"stride": 8, "size": 4}
    first = open_turntable("train", **settings)
    # 5 categories x 5 toys x azimuths 0, 160, 320 x elevations 30, 70 x lighting 0
    assert len(first) == 25 * 3 * 2
    assert first.shape == (2, 4, 4)
    assert sorted(set(first.factors["instance"].tolist())) == sorted(INSTANCES["train"])
    assert sorted(set(first.factors["azimuth"].tolist())) == [0, 160, 320]
    assert sorted(set(first.factors["elevation"].tolist())) == [30, 70]
    views = zip(*[first.labels.tolist(), *(values.tolist() for values in first.factors.values())], strict=True)
    assert len(set(views)) == len(first)
    assert not torch.equal(first.images[:, 0], first.images[:, 1])  # two eyes see two pictures
    assert len(set(first.labels[:20].tolist())) == 5  # any first part has all categories
    (file,) = own_cache.rglob("*.safetensors")
    stamp = file.stat().st_mtime_ns
    assert torch.equal(open_turntable("train", **settings).images, first.images)
    assert file.stat().st_mtime_ns == stamp
    file.write_bytes(file.read_bytes()[:-1])  # damaged: drawn again, the same
    assert torch.equal(open_turntable("train", **settings).images, first.images)
    monkeypatch.setattr("torchcaps.data.turntable.VERSION", 99)
    open_turntable("train", **settings)
    assert file.stat().st_mtime_ns != stamp


def test_image_belongs_to_its_factors(shared_cache: Path) -> None:
    images = open_turntable("test", stride=8, size=4)
    chosen = (images.labels == 2) & (images.factors["instance"] == 5)
    chosen &= (images.factors["azimuth"] == 160) & (images.factors["elevation"] == 70)
    (picture,) = images.images[chosen]
    fine = render(make_toy(2, 5, 0), [158.0, 162.0], [70.0, 70.0], [LIGHTS[0]], 8)[:, 0]
    expected = fine.reshape(2, 4, 2, 4, 2).mean(axis=(2, 4)) * 255
    assert np.abs(picture.numpy() - expected).max() <= 0.51


@pytest.mark.parametrize("factor", ["azimuth", "elevation"])
def test_splits_by_viewpoint(shared_cache: Path, factor: str) -> None:
    from torchcaps.data.datasets.viewpoints import split_by_viewpoint

    open_split = split_by_viewpoint(lambda split: open_turntable(split, stride=8, size=4), factor)
    train, familiar, novel = (open_split(split) for split in ("train", "familiar", "test"))
    allowed = set(FAMILIAR[factor])
    assert set(train.factors[factor].tolist()) <= allowed
    assert set(familiar.factors[factor].tolist()) <= allowed
    assert not set(novel.factors[factor].tolist()) & allowed
    assert set(train.factors["instance"].tolist()) == set(INSTANCES["train"])
    assert (
        set(novel.factors["instance"].tolist()) == set(familiar.factors["instance"].tolist()) == set(INSTANCES["test"])
    )
    assert len(familiar) + len(novel) == 150


def test_splits_by_toy(shared_cache: Path) -> None:
    from torchcaps.data.datasets.viewpoints import split_by_toy

    open_split = split_by_toy(lambda split: open_turntable(split, stride=8, size=4))
    train, unseen, test = (open_split(split) for split in ("train", "unseen", "test"))
    toys = [set(images.factors["instance"].tolist()) for images in (train, unseen, test)]
    assert toys == [{4, 6, 7, 8}, {9}, set(INSTANCES["test"])]
    assert len(train) == 4 * len(unseen)
    assert unseen.labels.bincount().tolist() == [len(unseen) // 5] * 5
    sizes = datasets.get("turntable-toys").splits
    assert sizes["train"] + sizes["unseen"] == sizes["test"] == datasets.get("turntable").splits["train"]


def test_every_smallnorb_dataset_has_its_stand_in() -> None:
    for name in datasets.names():
        if name.startswith("smallnorb"):
            record, stand_in = datasets.get(name), datasets.get(re.sub("smallnorb(-jpeg)?", "turntable", name))
            assert (record.shape, record.splits, record.crop) == (stand_in.shape, stand_in.splits, stand_in.crop)
            assert record.class_names == stand_in.class_names == CATEGORIES
            assert record.augmentation == stand_in.augmentation
            assert record.input_shape[1:] == (32, 32)


def test_halve_rounds_means() -> None:
    images = torch.randint(0, 256, (3, 2, 6, 4)).to(torch.uint8)
    halved = halve(images)
    for image in range(3):
        for row in range(3):
            for column in range(2):
                square = images[image, 1, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].int()
                assert halved[image, 1, row, column].item() == (int(square.sum()) + 2) // 4


def test_one_camera_and_choice_by_factor() -> None:
    images = torch.randint(0, 256, (4, 2, 4, 4)).to(torch.uint8)
    whole = TensorImages(images, torch.arange(4), CATEGORIES, {"azimuth": torch.tensor([0, 20, 40, 20])})
    left = one_camera(whole)
    assert left.shape == (1, 4, 4)
    assert torch.equal(left.images[:, 0], images[:, 0])
    assert with_viewpoints(whole, "azimuth", [20]).labels.tolist() == [1, 3]


@pytest.mark.slow
def test_small_set_by_name(own_cache: Path) -> None:
    assert len(load_dataset("turntable-small", "test")) == 900
