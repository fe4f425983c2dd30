"""Datasets derived from MNIST: translated, affine-transformed and overlaid digits."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import torch

from tests.reference import data_loops
from torchcaps.data import Augmentation, TensorImages, datasets, load_dataset, split_off
from torchcaps.data.datasets.affnist import RANGES, change_digits, transform_digits
from torchcaps.data.datasets.mnist import FILES, CenteredDigits, place_digits, random_offsets
from torchcaps.data.datasets.multimnist import OverlaidDigits
from torchcaps.data.io.download import find_files
from torchcaps.errors import TorchcapsError

needs_mnist = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_DATA") or find_files("mnist", FILES) is None,
    reason="MNIST is not in $TORCHCAPS_DATA",
)


def some_digits(count: int = 30, size: int = 28) -> TensorImages:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (count, 1, size, size), generator=generator).to(torch.uint8)
    return TensorImages(images, torch.arange(count) % 10, tuple("0123456789"))


def test_changed_digits_agree_with_loops() -> None:
    digits = some_digits(4)
    changed = change_digits(digits, seed=0)
    batch = changed.batch(torch.arange(4))
    for number in range(4):
        drawn = {
            name: low + (high - low) * data_loops.uniform(0, stream, number)
            for stream, (name, (low, high)) in enumerate(RANGES.items())
        }
        for name, value in drawn.items():
            assert batch.factors[name][number].item() == pytest.approx(value, rel=1e-5)
        angle, slant = (torch.deg2rad(torch.tensor(drawn[name], dtype=torch.float64)) for name in ("rotation", "shear"))
        turn = torch.tensor([[angle.cos(), angle.sin()], [-angle.sin(), angle.cos()]])
        lean = torch.tensor([[1, slant.tan()], [0, 1]], dtype=torch.float64)
        matrix = (
            turn.double() @ lean @ torch.diag(torch.tensor([drawn["scale_x"], drawn["scale_y"]], dtype=torch.float64))
        )
        expected = data_loops.warp(
            (digits.images[number, 0] / 255).tolist(), matrix.tolist(), (drawn["shift_x"], drawn["shift_y"]), 40, 40
        )
        torch.testing.assert_close(batch.images[number, 0], torch.tensor(expected), atol=0.003, rtol=0)


def test_changed_digits_are_fixed_by_the_seed() -> None:
    digits = some_digits()
    first = change_digits(digits, 0)
    assert torch.equal(first.images, change_digits(digits, 0).images)
    assert not torch.equal(first.images, change_digits(digits, 1).images)
    # Digit k depends on (seed, k) only, not on how many digits there are.
    assert torch.equal(first.images[:7], change_digits(digits.where(torch.arange(7)), 0).images)


def test_changed_digits_fill_the_ranges_of_gu2021() -> None:
    """Section 3.1: rotation within 20 and shear within 45 degrees, scale from 0.8 to 1.2, shift within 8 pixels."""
    ranges = {"rotation": 20, "shear": 45, "shift_x": 8, "shift_y": 8}
    scales = dict.fromkeys(("scale_x", "scale_y"), (0.8, 1.2))
    factors = change_digits(some_digits(3000, size=4), 0).factors
    assert set(factors) == set(ranges | scales)
    for name, (low, high) in ({name: (-most, most) for name, most in ranges.items()} | scales).items():
        assert low <= float(factors[name].min()) < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < float(factors[name].max()) <= high


def inked_digits(count: int = 400) -> TensorImages:
    """Digits as large as MNIST's: 20x20 pixels of noise in the middle of 28x28."""
    images = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    images[:, :, 4:24, 4:24] = some_digits(count, size=20).images
    return TensorImages(images, torch.arange(count) % 10, tuple("0123456789"))


def test_transformed_digits_agree_with_loops() -> None:
    digits = inked_digits(4)
    changed = transform_digits(digits, seed=0)
    batch = changed.batch(torch.arange(4))
    for number in range(4):
        drawn = {name: values[number].item() for name, values in batch.factors.items()}
        assert drawn["shear"] == pytest.approx(0.4 * data_loops.uniform(0, 1, number) - 0.2, abs=1e-6), "a factor"
        angle = torch.deg2rad(torch.tensor(drawn["rotation"], dtype=torch.float64))
        turn = torch.tensor([[angle.cos(), angle.sin()], [-angle.sin(), angle.cos()]]).double()
        lean = torch.tensor([[1, drawn["shear"]], [0, 1]], dtype=torch.float64)
        matrix = turn @ lean @ torch.diag(torch.tensor([drawn["scale_x"], drawn["scale_y"]], dtype=torch.float64))
        expected = data_loops.warp(
            (digits.images[number, 0] / 255).tolist(), matrix.tolist(), (drawn["shift_x"], drawn["shift_y"]), 40, 40
        )
        torch.testing.assert_close(batch.images[number, 0], torch.tensor(expected), atol=0.003, rtol=0)


def test_no_part_of_a_transformed_digit_is_lost() -> None:
    digits = inked_digits()
    small, large = transform_digits(digits, seed=0), transform_digits(digits, seed=0, side=60)
    ink, all_ink = (each.images.long().sum(dim=(1, 2, 3)) for each in (small, large))
    torch.testing.assert_close(ink, all_ink, rtol=0, atol=5)  # of about 50,000: pixels are rounded
    inked = small.images[:, 0] > 0
    for edge in (inked[:, 0], inked[:, -1], inked[:, :, 0], inked[:, :, -1]):
        assert 0.01 < edge.any(dim=1).double().mean() < 0.5, "some digits touch the edge"
    assert 0.19 < small.factors["shear"].max() <= 0.2
    assert -0.2 <= small.factors["shear"].min() < -0.19
    kept = change_digits(digits, seed=0).images.double().sum() / digits.images.double().sum()
    assert kept < ink.double().sum() / digits.images.double().sum(), "affnist-45 loses some"


def test_narrow_digits_are_shifted_by_up_to_eight_pixels() -> None:
    digits = inked_digits()
    digits.images[..., :12] = 0
    digits.images[..., 16:] = 0
    factors = transform_digits(digits, seed=0).factors
    assert sorted(set(factors["shift_x"].tolist())) == list(range(-8, 9))
    assert factors["shift_y"].abs().max() <= 8


def test_transformed_digits_are_fixed_by_the_seed() -> None:
    digits = inked_digits(600)
    first = transform_digits(digits, 0)
    assert torch.equal(first.images, transform_digits(digits, 0).images)
    assert not torch.equal(first.images, transform_digits(digits, 1).images)
    assert torch.equal(first.images[:7], transform_digits(digits.where(torch.arange(7)), 0).images)


def test_moving_digits_reach_every_place_and_held_out_ones_stay() -> None:
    digits = some_digits(3000)
    moving = CenteredDigits(digits)
    training, validation = split_off(moving, 300, seed=0)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    held = order[:300]
    placed = place_digits(digits.where(held), random_offsets("train", held))
    assert torch.equal(validation.batch(torch.arange(300)).images, placed.batch(torch.arange(300)).images)
    augment = Augmentation(datasets.get("mnist-40-moving").augmentation)
    centered = training.batch(torch.arange(2700))
    assert torch.equal(centered.images[:, :, 6:34, 6:34], digits.batch(order[300:]).images)
    rounds = [augment(centered.images, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    assert not torch.equal(*rounds)
    inked = rounds[0][:, 0] > 0  # all pixels of these digits are inked
    places = [inked.any(dim=2).int().argmax(1), inked.any(dim=1).int().argmax(1)]
    for axis in places:
        assert torch.bincount(axis, minlength=13).min() > 2700 / 13 / 2
        assert axis.max() == 12
    assert (inked.sum(dim=(1, 2)) == 28 * 28).all(), "no part is lost"


def test_overlaid_images_are_clipped_sums_of_their_targets() -> None:
    digits = some_digits()
    pairs = OverlaidDigits(digits, seed=0, per_digit=10)
    indices = torch.tensor([0, 5, 299, 5, 123])
    batch = pairs.batch(indices)
    assert batch.targets is not None
    assert batch.images.shape == (5, 1, 36, 36)
    assert batch.targets.shape == (5, 2, 1, 36, 36)
    first, second, corners = pairs.draw(indices)
    for number in range(5):
        expected = []
        for digit, source in enumerate((first[number], second[number])):
            top, left = corners[number, digit].tolist()
            assert 0 <= top <= 8
            assert 0 <= left <= 8
            expected.append(data_loops.place((digits.images[source, 0] / 255).tolist(), top, left, 36, 36))
            torch.testing.assert_close(batch.targets[number, digit, 0], torch.tensor(expected[digit]))
        for row in range(36):
            for column in range(36):
                total = min(1.0, expected[0][row][column] + expected[1][row][column])
                assert batch.images[number, 0, row, column].item() == pytest.approx(total, abs=1e-6)
        assert batch.labels[number].tolist() == [int(digits.labels[first[number]]), int(digits.labels[second[number]])]


def test_overlaid_digits_are_of_different_classes_and_all_take_part() -> None:
    digits = some_digits(50)
    digits.labels[:20] = 3  # classes of very different sizes
    pairs = OverlaidDigits(digits, seed=0, per_digit=400)
    first, second, corners = pairs.draw(torch.arange(len(pairs)))
    assert not (digits.labels[first] == digits.labels[second]).any()
    assert set(Counter(first.tolist()).values()) == {400}
    assert set(second.tolist()) == set(range(50))
    for axis in corners.flatten(1).T:
        assert sorted(set(axis.tolist())) == list(range(9))
    # Each possible partner of digit 0 (of class 3) is as likely as any other.
    counts = Counter(second[first == 0].tolist())
    assert max(counts.values()) < 3 * 400 / 30


def test_no_overlaid_image_repeats() -> None:
    pairs = OverlaidDigits(some_digits(11), seed=0, per_digit=2000)
    first, second, corners = pairs.draw(torch.arange(len(pairs)))
    draws = torch.cat([first[:, None], second[:, None], corners.flatten(1)], dim=1)
    assert len({tuple(draw) for draw in draws.tolist()}) == len(pairs) == 22_000


def test_overlaid_images_are_random_access() -> None:
    pairs = OverlaidDigits(some_digits(), seed=0, per_digit=1000)
    whole = pairs.batch(torch.arange(200, 260))
    for number in (0, 17, 59):
        alone = OverlaidDigits(some_digits(), seed=0, per_digit=1000).batch(torch.tensor([200 + number]))
        assert torch.equal(alone.images[0], whole.images[number])
    other = OverlaidDigits(some_digits(), seed=1, per_digit=1000).batch(torch.arange(200, 260))
    assert not torch.equal(other.images, whole.images)


def test_validation_holds_out_digits_not_pairs() -> None:
    digits = some_digits(60)
    pairs = OverlaidDigits(digits, seed=0, per_digit=100)
    train, validation = split_off(pairs, 25, seed=0)
    assert len(validation) == 25
    assert len(train) == 50 * 100
    assert train.batch(torch.arange(9)).images.shape == (9, 1, 36, 36)

    def sources(images: object) -> set[bytes]:
        whole = getattr(images, "whole", images)
        return {image.numpy().tobytes() for image in whole.digits.images}

    assert not sources(train) & sources(validation)
    assert sources(train) | sources(validation) == sources(pairs)
    again = split_off(pairs, 25, seed=0)[1].batch(torch.arange(25))
    assert torch.equal(again.images, validation.batch(torch.arange(25)).images)


def test_one_class_cannot_be_overlaid() -> None:
    digits = some_digits()
    digits.labels[:] = 4
    with pytest.raises(TorchcapsError, match="at least two classes"):
        OverlaidDigits(digits, 0, 1)


@needs_mnist
@pytest.mark.parametrize("name", ["mnist", "mnist-40", "mnist-40-moving", "affnist", "affnist-45", "multimnist"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_real_digits_are_as_the_record_says(name: str, split: str) -> None:
    record, images = datasets.get(name), load_dataset(name, split)
    assert len(images) == record.splits[split]
    assert images.shape == record.shape
    batch = images.batch(torch.tensor([0, len(images) - 1, 77]))
    assert batch.images.shape == (3, *record.shape)
    assert batch.images.dtype == torch.float32
    assert float(batch.images.min()) >= 0
    assert 0.9 < float(batch.images.max()) <= 1


@needs_mnist
def test_real_digits_lie_whole_on_the_canvas() -> None:
    digits, placed = load_dataset("mnist", "test"), load_dataset("mnist-40", "test")
    indices = torch.arange(0, 10_000, 13)
    plain, moved = digits.batch(indices), placed.batch(indices)
    assert torch.equal(plain.labels, moved.labels)
    torch.testing.assert_close(plain.images.sum(dim=(1, 2, 3)), moved.images.sum(dim=(1, 2, 3)))
    rows, columns = moved.factors["row"], moved.factors["column"]
    assert sorted(set(rows.tolist())) == sorted(set(columns.tolist())) == list(range(13))
    for number in (0, 100, 700):
        top, left = int(rows[number]), int(columns[number])
        assert torch.equal(moved.images[number, 0, top : top + 28, left : left + 28], plain.images[number, 0])
