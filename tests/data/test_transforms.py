"""Geometry and augmentation compared with loops over pixels, and properties of their randomness."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from tests.reference import data_loops
from torchcaps.data import Augmentation, center_crop, thirteen_crops
from torchcaps.data.counter_rng import integers, uniform
from torchcaps.data.transforms import (
    CHANGES,
    MATRICES,
    Draws,
    own_generator,
    place,
    rotate,
    rotation,
    scale,
    scaling,
    shearing,
    warp,
)
from torchcaps.errors import TorchcapsError

EVERY = {
    "rotate": 20,
    "shear": 30,
    "scale": 0.2,
    "shift": 2,
    "crop": 10,
    "flip": 0.5,
    "brightness": 0.25,
    "contrast": 0.8,
}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 2, 14, 12, generator=seeded(1))


def test_every_change_is_tested() -> None:
    assert set(EVERY) == {*MATRICES, *CHANGES}


@pytest.mark.parametrize("size", [(14, 12), (20, 17)])
def test_warp_agrees_with_loops(images: Tensor, size: tuple[int, int]) -> None:
    angle, slant = torch.linspace(-70, 160, 6), torch.linspace(-40, 30, 6)
    matrix = rotation(angle) @ shearing(slant, slant / 3) @ scaling(torch.linspace(0.6, 1.4, 6), torch.ones(6))
    shift = torch.linspace(-3, 3, 12).reshape(6, 2)
    result = warp(images, matrix, shift, size)
    for number in range(6):
        for channel in range(2):
            expected = data_loops.warp(
                images[number, channel].tolist(), matrix[number].tolist(), tuple(shift[number].tolist()), *size
            )
            torch.testing.assert_close(result[number, channel], torch.tensor(expected), atol=2e-5, rtol=0)


def test_matrices_do_what_they_say() -> None:
    right = torch.tensor([1.0, 0.0])
    assert torch.allclose(rotation(torch.tensor([90.0])) @ right, torch.tensor([0.0, -1.0]), atol=1e-6)  # up the page
    down = torch.tensor([0.0, 1.0])
    assert torch.allclose(shearing(torch.tensor([45.0]), torch.zeros(1)) @ down, torch.tensor([1.0, 1.0]))
    assert torch.allclose(scaling(torch.tensor([2.0]), torch.tensor([3.0])) @ torch.ones(2), torch.tensor([2.0, 3.0]))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    corners=st.lists(st.tuples(st.integers(-7, 9), st.integers(-7, 9)), min_size=1, max_size=4),
)
def test_place_agrees_with_loops(rows: int, columns: int, corners: list[tuple[int, int]]) -> None:
    images = torch.rand(len(corners), 1, 4, 5, generator=seeded())
    result = place(images, torch.tensor(corners), (rows, columns))
    for number, (top, left) in enumerate(corners):
        expected = data_loops.place(images[number, 0].tolist(), top, left, rows, columns)
        assert torch.equal(result[number, 0], torch.tensor(expected))


@pytest.mark.parametrize("name", EVERY)
def test_changes_are_reproducible_and_stay_in_range(name: str, images: Tensor) -> None:
    change = Augmentation(f"{name}={EVERY[name]}")
    first, again, other = (change(images, seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1
    before = images.clone()
    change(images, seeded())
    assert torch.equal(images, before)  # the caller's images are left alone


@pytest.mark.parametrize("name", EVERY)
def test_one_change_leaves_the_draws_of_another_alone(name: str, images: Tensor) -> None:
    if name == "flip":
        pytest.skip("the change that is added")
    alone = Augmentation(f"{name}={EVERY[name]}")(images, seeded())
    with_flip = Augmentation(f"{name}={EVERY[name]},flip=1")(images, seeded())
    assert torch.equal(with_flip, alone.flip(3))


@pytest.mark.parametrize("name", EVERY)
def test_a_part_of_a_batch_is_changed_as_in_the_whole(name: str, images: Tensor) -> None:
    change = Augmentation(f"{name}={EVERY[name]}")
    part = slice(2, 5)
    assert torch.equal(change(images[part], seeded(), part=part, of=6), change(images, seeded())[part])


def test_changes_of_one_image_are_independent() -> None:
    draws = torch.stack([torch.rand(4000, generator=own_generator(5, name)) for name in EVERY])
    mutual = torch.corrcoef(draws) - torch.eye(len(EVERY))
    assert float(mutual.abs().max()) < 0.08


def test_images_of_a_batch_get_changes_of_their_own(images: Tensor) -> None:
    same = images[:1].expand(6, 2, 14, 12)
    for name, amount in EVERY.items():
        changed = Augmentation(f"{name}={amount}")(same, seeded(3))
        assert any(not torch.equal(changed[0], changed[number]) for number in range(1, 6)), name


def test_shift_moves_by_whole_pixels_and_reaches_both_ends() -> None:
    picture = torch.zeros(500, 1, 9, 9)
    picture[:, :, 4, 4] = 1
    places = Augmentation("shift=2")(picture, seeded()).nonzero()[:, 2:]
    assert len(places) == 500
    assert places.min(dim=0).values.tolist() == [2, 2]
    assert places.max(dim=0).values.tolist() == [6, 6]
    assert len({tuple(place) for place in places.tolist()}) == 25


def test_crop_reaches_every_place() -> None:
    picture = torch.arange(25.0).reshape(1, 1, 5, 5).expand(300, 1, 5, 5) / 25
    corners = Augmentation("crop=3")(picture, seeded())[:, 0, 0, 0]
    assert len(set(corners.tolist())) == 9


def test_contrast_keeps_the_mean_and_brightness_moves_it() -> None:
    images = torch.rand(50, 1, 8, 8, generator=seeded()) * 0.2 + 0.4  # too grey to be clipped
    changed = Augmentation("contrast=0.8")(images, seeded())
    torch.testing.assert_close(changed.mean(dim=(1, 2, 3)), images.mean(dim=(1, 2, 3)))
    factor = changed.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    assert 0.2 <= float(factor.min()) < 0.4 < 1.5 < float(factor.max()) <= 1.8
    moved = (Augmentation("brightness=0.247")(images, seeded()) - images).flatten(1)
    torch.testing.assert_close(moved, moved[:, :1].expand_as(moved))
    assert 0.2 < float(moved.abs().max()) <= 0.247


def test_jitter_is_drawn_for_the_network_input_and_leaves_pixels_alone(images: Tensor) -> None:
    change = Augmentation("normalized-brightness=0.25,normalized-contrast=0.8")
    assert torch.equal(change(images, seeded()), images)
    jitter = change.jitter(seeded(), 500)
    assert jitter is not None
    factor, offset = jitter.unbind(1)
    assert 0.2 <= float(factor.min()) < 0.25 < 1.75 < float(factor.max()) <= 1.8
    assert -0.25 <= float(offset.min()) < -0.24 < 0.24 < float(offset.max()) <= 0.25
    assert abs(float(torch.corrcoef(jitter.T)[0, 1])) < 0.15
    assert torch.equal(jitter, change.jitter(seeded(), 500))  # type: ignore[arg-type]
    part = change.jitter(seeded(), 500, part=slice(100, 200))
    assert part is not None
    assert torch.equal(part, jitter[100:200])
    only = Augmentation("normalized-contrast=0.8,shift=2").jitter(seeded(), 500)
    assert only is not None
    assert torch.equal(only[:, 0], factor)
    assert torch.equal(only[:, 1], torch.zeros(500))
    assert Augmentation("shift=2,contrast=0.8").jitter(seeded(), 500) is None


def test_rotate_shear_and_scale_are_one_resampling(images: Tensor) -> None:
    chance = Augmentation("scale=0.3,rotate=20")
    seed = int(torch.randint(1 << 62, (), generator=seeded()))
    draws = {name: Draws(own_generator(seed, name), 6, slice(None)) for name in ("rotate", "scale")}
    matrix = rotate(20, draws["rotate"]) @ scale(0.3, draws["scale"])
    assert torch.equal(chance(images, seeded()), warp(images, matrix))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shft=2", "did you mean 'shift'"),
        ("shift", "should be written shift=NUMBER"),
        ("shift=two", "should be written shift=NUMBER"),
        ("shift=1.5", "an integer is needed"),
        ("shift=-1", "out of range"),
        ("rotate=nan", "out of range"),
        ("scale=1", "out of range"),
        ("flip=2", "out of range"),
        ("normalized-contrast=1.5", "out of range"),
        ("normalized-brightnes=1", "did you mean 'normalized-brightness'"),
        ("crop=1e300", "out of range"),
    ],
)
def test_bad_augmentation(text: str, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        Augmentation(text)


def test_crop_larger_than_the_image(images: Tensor) -> None:
    for size in (0, 13):
        with pytest.raises(TorchcapsError, match=f"cannot crop {size}x{size} pixels out of 14x12"):
            Augmentation(f"crop={size}")(images, seeded())
    with pytest.raises(TorchcapsError, match="choose a smaller crop"):
        center_crop(images, 13)


def test_empty_augmentation_changes_nothing(images: Tensor) -> None:
    assert torch.equal(Augmentation("")(images, seeded()), images)


def test_thirteen_crops() -> None:
    picture = torch.arange(48.0 * 48).reshape(1, 1, 48, 48)
    crops = thirteen_crops(picture, 32)
    assert crops.shape == (13, 1, 1, 32, 32)
    corners = [divmod(int(value), 48) for value in crops[:, 0, 0, 0, 0]]
    offsets = [(row - 8, column - 8) for row, column in corners]
    assert offsets[0] == (0, 0)
    assert sorted(offsets[1:]) == sorted((a * k, b * k) for k in (1, 2, 3) for a in (-1, 1) for b in (-1, 1))
    assert torch.equal(crops[0], center_crop(picture, 32))
    with pytest.raises(TorchcapsError, match="cannot crop 38x38"):
        thirteen_crops(picture[..., :36, :36], 32)


def test_counter_agrees_with_whole_number_arithmetic() -> None:
    positions = torch.tensor([0, 1, 2, 1000, 59_999_999, 1 << 40])
    for seed, stream in ((0, 0), (1, 0), (0, 1), (123_456_789, 7)):
        expected = [data_loops.uniform(seed, stream, position) for position in positions.tolist()]
        assert uniform(seed, stream, positions).tolist() == expected


def test_counter_is_uniform_and_streams_differ() -> None:
    positions = torch.arange(100_000)
    values = uniform(3, 0, positions)
    counts = torch.histc(values, 20, 0, 1)
    assert float(((counts - 5000) ** 2 / 5000).sum()) < 45  # chi-squared, 19 degrees of freedom: 0.1 % above 44
    for other in (uniform(4, 0, positions), uniform(3, 1, positions), uniform(3, 0, positions + 1)):
        assert abs(float(torch.corrcoef(torch.stack([values, other]))[0, 1])) < 0.015
    assert sorted(set(integers(0, 0, positions, 7).tolist())) == list(range(7))
