from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.helpers.small_models import trained
from tests.reference import acgan as reference
from torchcaps.data import load_dataset
from torchcaps.data.base import as_floats
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import acgan, robustness, save_evaluation
from torchcaps.evaluate.acgan import (
    ACGAN,
    LATENT,
    SIZES,
    GanSettings,
    epoch_file,
    generate,
    measure_acgan,
    train_acgan,
    train_step,
)
from torchcaps.evaluate.report import notes, summary_table
from torchcaps.evaluate.robustness import protocols
from torchcaps.reproduce.spec import load_spec

pytestmark = pytest.mark.process

STEPS = 70
TINY = GanSettings(data="glyphs", train_images=24, batch=8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary cache for the GANs of tests."""
    monkeypatch.setattr("torchcaps.evaluate.acgan.cache_folder", lambda: tmp_path)
    return tmp_path / "acgan"


def weights(path: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load_file(path)
    return found


def test_maps_and_parameters_have_the_papers_shapes() -> None:
    gan = ACGAN().eval()
    maps: list[tuple[int, ...]] = []
    for layer in gan.generator.layers:
        layer.register_forward_hook(lambda _, given, made: maps.append(tuple(made.shape[1:])))
    images = gan.generator(2 * torch.rand(2, LATENT) - 1, torch.tensor([3, 4])).detach()
    assert images.shape == (2, 1, 28, 28)
    assert 0 < float(images.min()) <= float(images.max()) < 1
    assert list(dict.fromkeys(each for each in maps if len(each) == 3)) == [
        (384, 3, 3),
        (192, 7, 7),
        (96, 14, 14),
        (1, 28, 28),
    ]
    real, shown = gan.discriminator(images)
    assert (real.shape, shown.shape) == ((2,), (2, 10))
    convolutions = [tuple(value.shape) for value in gan.discriminator.layers.parameters() if value.ndim == 4]
    assert convolutions == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3), (256, 128, 3, 3)]
    assert next(gan.generator.layers.parameters()).shape == (3 * 3 * 384, 100)
    assert sum(isinstance(layer, torch.nn.Dropout) for layer in gan.discriminator.modules()) == 4
    assert (SIZES["paper"].learning_rate, SIZES["paper"].beta1, SIZES["paper"].train_images) == (2e-4, 0.5, None)


def test_a_step_is_that_of_two_networks_with_an_optimizer_each() -> None:
    batch = load_dataset("glyphs", "train").batch(torch.arange(6))
    torch.manual_seed(1)
    gan = ACGAN()
    torch.manual_seed(1)
    other = ACGAN()
    # What Adam does where a gradient is nearly zero is up to rounding; momentum too would move what has no gradient.
    optimizer = torch.optim.SGD(gan.parameters(), 0.05, momentum=0.5)
    step = reference.stepper(other.generator, other.discriminator)
    for seed in (5, 6):
        torch.manual_seed(seed)
        train_step(gan, optimizer, batch.images, batch.labels)
        torch.manual_seed(seed)
        step(batch.images, batch.labels)
    for (name, ours), theirs in zip(gan.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_training_goes_on_where_it_stopped_and_ends_alike(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    at_once, in_parts, other = (tmp_path / name for name in ("at-once", "in-parts", "other"))
    train_acgan(at_once, TINY, 2)
    assert torch.equal(torch.get_rng_state(), before), "random numbers of the caller are not used up"
    train_acgan(in_parts, TINY, 1)
    assert not epoch_file(in_parts, 2).exists()
    train_acgan(in_parts, TINY, 2)
    for name in ("epoch-1", "epoch-2", "last"):
        ours, theirs = (weights(folder / f"{name}.safetensors") for folder in (at_once, in_parts))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    written = epoch_file(in_parts, 2).stat().st_mtime_ns
    train_acgan(in_parts, TINY, 2)
    assert epoch_file(in_parts, 2).stat().st_mtime_ns == written, "what is there is not trained again"

    drawn = generate(at_once, 1, 25)
    assert torch.equal(drawn.labels, torch.arange(25) % 10)
    assert torch.equal(drawn.images, generate(in_parts, 1, 25).images)
    assert not torch.equal(drawn.images, generate(in_parts, 2, 25).images)
    assert not torch.equal(drawn.images, generate(in_parts, 1, 25, seed=1).images)
    train_acgan(other, GanSettings(data="glyphs", train_images=24, batch=8, seed=1), 1)
    assert not torch.equal(drawn.images, generate(other, 1, 25).images)


class PatternJudge(nn.Module):
    """A discriminator that recognizes ten patterns, a bar at a different height for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.patterns = torch.zeros(10, 28, 28)
        for label in range(10):
            self.patterns[label, 2 * label + 4 : 2 * label + 8] = 1
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        apart = (images - self.patterns).square().flatten(2).sum(2)  # (B, 10)
        return self.bias.expand(len(images)), -apart / 20


@pytest.mark.slow
def test_the_class_decides_what_is_drawn_and_the_latent_vector_how() -> None:
    torch.manual_seed(0)
    gan, judge = ACGAN(), PatternJudge()
    gan.discriminator = judge  # type: ignore[assignment]  (the real one takes hundreds of steps)
    optimizer = torch.optim.Adam(gan.parameters(), 3e-3, betas=(0.5, 0.999))
    images, labels = torch.zeros(20, 1, 28, 28), torch.zeros(20).long()
    for _ in range(STEPS):
        train_step(gan, optimizer, images, labels)
    wanted = torch.arange(100) % 10
    with torch.no_grad():
        drawn = gan.generator.eval()(2 * torch.rand(100, LATENT) - 1, wanted)
        answers = judge(drawn)[1].argmax(1)
    assert (answers == wanted).double().mean() > 0.2  # by chance: 0.1, give or take 0.03
    assert drawn.view(10, 10, 28, 28).std(0).mean() > 0.01, "not one drawing for each class"


def test_error_by_epoch_in_json_table_and_figures(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    found = measure_acgan(model, TINY, images_used=30, epochs=2)
    assert found["images"] == 30
    assert [path.name for path in cache.iterdir()] == [TINY.folder().name]
    for epoch in (1, 2):
        drawn = generate(TINY.folder(), epoch, 30)
        with torch.no_grad():
            wrong = int((model(as_floats(drawn.images)).scores.argmax(1) != drawn.labels).sum())
        assert found["error_by_epoch"][str(epoch)] == pytest.approx(wrong / 30)
        alike = as_floats(drawn.images).view(3, 10, 28, 28).double().std(0, correction=0).mean().item()
        assert found["variety_by_epoch"][str(epoch)] == pytest.approx(alike, rel=1e-4)
    run = {"run": "somewhere/a", "data": "mnist", "tests": {"acgan": found}, "attacked": None, "refused": {}}
    titles, rows = summary_table([run])
    assert titles == ["run", "test", "accuracy"]
    assert [row[1] for row in rows] == ["acgan, epoch 1", "acgan, epoch 2"]
    assert rows[0][2] == f"{100 * (1 - found['error_by_epoch']['1']):.1f}"
    assert notes([run]) == ["acgan: digits drawn by an AC-GAN after each of 2 epochs on 24 images of glyphs, 30 images"]
    written = [path.name for path in save_evaluation(tmp_path / "out", [run])]
    assert written == ["evaluation.json", "acgan.svg", "acgan.png", "acgan-images.png"]
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["runs"][0]["tests"]["acgan"] == found

    monkeypatch.setitem(SIZES, "laptop", TINY)
    monkeypatch.setattr(robustness, "check_digits", lambda *given: None)
    longer = protocols.get("acgan").measure(model, "glyphs", 30)["error_by_epoch"]
    assert list(longer) == ["1", "2", "3", "4", "5"]
    assert found["error_by_epoch"].items() <= longer.items()


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        TorchcapsError, match="generated digits need a model trained on MNIST digits, got one trained on glyphs"
    ):
        protocols.get("acgan").measure(trained(), "glyphs", 10)
    with pytest.raises(
        TorchcapsError, match="needs 28x28 grayscale images of ten classes, which turntable-small does not"
    ):
        train_acgan(tmp_path, GanSettings(data="turntable-small"), 1)


def test_the_paper_is_cited_with_its_authors() -> None:
    names = load_spec("chen2019").authors.split(", ")
    surnames = ", ".join(name.split()[-1] for name in names)
    assert acgan.__doc__ is not None
    assert surnames in acgan.__doc__
