"""Properties of every model in the registry."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.losses import losses, one_hot
from torchcaps.models import Model, ModelRecord, create_model, models
from torchcaps.train.optimizers import make_schedule, optimizers

each_model = pytest.mark.parametrize("record", list(models), ids=lambda record: record.name)


def natural(record: ModelRecord) -> dict[str, Any]:
    channels, size, _ = record.image
    return {"image_size": size, "channels": channels}


def build(record: ModelRecord, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return create_model(record.name, size="laptop", **natural(record))


@each_model
def test_scores_are_finite_and_in_the_order_of_the_logits(record: ModelRecord) -> None:
    model = build(record).eval()
    for images in (torch.rand(2, *record.image), torch.zeros(2, *record.image), torch.ones(2, *record.image)):
        output = model(images)
        assert output.scores.shape == output.logits.shape == (2, 10)
        assert output.scores.isfinite().all()
        assert output.logits.isfinite().all()
        assert ((output.scores >= 0) & (output.scores <= 1)).all()
        assert torch.equal(output.scores.gather(1, output.logits.argsort(1)), output.scores.sort(1).values)
        assert output.votes is None
        assert (output.pose is not None) == (record.capsules or model.decoder is not None)


@each_model
def test_every_parameter_gets_a_gradient_from_the_recipe_s_loss(record: ModelRecord) -> None:
    model, images, labels = build(record).train(), torch.rand(4, *record.image), torch.arange(4)
    output = model(images)
    loss = losses.get(record.recipe.loss).compute(output.scores, output.logits, one_hot(labels, 10), 0.5)
    if model.decoder is not None:
        loss = loss + (model.reconstruct(output, labels) - images).square().sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@each_model
def test_the_same_seed_gives_the_same_model(record: ModelRecord) -> None:
    images = torch.rand(2, *record.image)
    first, second, third = (build(record, seed).eval()(images).scores for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@each_model
def test_images_do_not_influence_each_other(record: ModelRecord) -> None:
    model, images = build(record).eval(), torch.rand(3, *record.image)
    alone = torch.cat([model(image.unsqueeze(0)).scores for image in images])
    torch.testing.assert_close(model(images).scores, alone, rtol=1e-3, atol=1e-4)


@each_model
@pytest.mark.parametrize("training", [False, True])
def test_an_empty_batch_gives_an_empty_output(record: ModelRecord, training: bool) -> None:
    model = build(record).train(training)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for kernels in ("auto", "plain"):
        images = torch.rand(0, *record.image, requires_grad=True)
        with use_kernels(kernels):
            output = model(images)
        assert output.scores.shape == output.logits.shape == (0, 10)
        total = output.scores.sum() + output.logits.sum()
        if model.decoder is not None:
            drawn = model.reconstruct(output)
            assert drawn.shape == (0, *record.image)
            total = total + drawn.sum()
        model.zero_grad()
        total.backward()
        assert images.grad is not None
        assert images.grad.shape == images.shape
        assert all(not each.grad.any() for each in model.parameters() if each.grad is not None)
        loss = losses.get(record.recipe.loss).compute(output.scores, output.logits, torch.zeros(0, 10), 0.5)
        assert loss.isnan(), "the mean over no images, as in torch"
    for name, value in model.state_dict().items():  # running means and couplings have seen nothing
        assert name.endswith("num_batches_tracked") or torch.equal(value, state[name]), name
    model.after_step(output, torch.zeros(0, dtype=torch.long))
    assert all(value.isfinite().all() for value in model.state_dict().values())


@each_model
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_to_float32(record: ModelRecord, dtype: torch.dtype) -> None:
    exact, model = build(record).eval(), build(record).eval().to(dtype)
    images = torch.cat([torch.rand(2, *record.image), torch.zeros(1, *record.image), torch.ones(1, *record.image)])
    expected, output = exact(images), model(images.to(dtype))
    # Layer normalization scales the rounding errors of short poses up.
    tolerance = (8 if record.paper == "tsai2020" else 4) * torch.finfo(dtype).eps
    for name in ("scores", "pose"):
        wanted, found = getattr(expected, name), getattr(output, name)
        assert (wanted is None) == (found is None)
        if wanted is not None:
            assert found.dtype == dtype
            torch.testing.assert_close(found.float(), wanted, rtol=tolerance, atol=tolerance)
    assert output.logits.dtype == dtype
    assert output.logits.isfinite().all()
    if model.decoder is not None:
        drawn = model.reconstruct(output)
        torch.testing.assert_close(drawn.float(), exact.reconstruct(expected), rtol=tolerance, atol=tolerance)


@each_model
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_has_finite_gradients(record: ModelRecord, dtype: torch.dtype) -> None:
    model, labels = build(record).to(dtype).train(), torch.arange(4)
    images = torch.rand(4, *record.image)
    images[0] = 0
    output = model(images.to(dtype).requires_grad_())
    loss = losses.get(record.recipe.loss).compute(output.scores, output.logits, one_hot(labels, 10), 0.5)
    if model.decoder is not None:
        loss = loss + (model.reconstruct(output, labels) - images).square().mean()
    loss.backward()
    model.after_step(output, labels)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(value.isfinite().all() for value in model.state_dict().values())


@each_model
@pytest.mark.parametrize("pixel", [float("nan"), float("inf"), -float("inf")])
def test_pixels_that_are_not_finite_are_refused(record: ModelRecord, pixel: float) -> None:
    images = torch.rand(5, *record.image)
    images[3, 0, 1, 2] = pixel
    model = build(record)
    with pytest.raises(TorchcapsError, match=r"got NaN or infinity in 1 of 5 images, the first at index 3: ") as caught:
        model(images)
    assert "\n" not in str(caught.value)


@each_model
def test_both_sizes_build_and_laptop_is_the_smaller(record: ModelRecord) -> None:
    with torch.device("meta"):
        paper, laptop = (
            sum(each.numel() for each in create_model(record.name, size=size, **natural(record)).parameters())
            for size in ("paper", "laptop")
        )
    assert laptop <= paper
    assert (laptop < paper) == bool(record.laptop)


@each_model
def test_other_images_are_refused(record: ModelRecord) -> None:
    channels, height, width = record.image
    with pytest.raises(TorchcapsError, match="was built for images"):
        build(record)(torch.rand(2, channels, height + 1, width))
    if record.paper == "choi2019":  # padding everywhere: the smallest image is a single pixel
        smallest = create_model(record.name, size="laptop", image_size=1, channels=channels)
        assert smallest(torch.rand(2, channels, 1, 1)).scores.shape == (2, 10)
    else:
        with pytest.raises(TorchcapsError, match=r"pixels|does not fit"):
            create_model(record.name, image_size=1, channels=channels)


@each_model
def test_a_saved_model_is_the_same_when_loaded(record: ModelRecord) -> None:
    first, second, images = build(record, 1), build(record, 2), torch.rand(2, *record.image)
    first.train()(images)  # moves what is not a parameter: running means, couplings
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second.eval()(images).scores, first.eval()(images).scores)


@each_model
def test_the_record_can_be_trained_and_told_apart_from_image_settings(record: ModelRecord) -> None:
    recipe = record.recipe
    assert recipe.loss in losses
    assert recipe.optimizer in optimizers
    assert recipe.reconstruction in ("sum", "mean")
    assert make_schedule(recipe.schedule)(0) == pytest.approx(1.0)
    own = set(inspect.signature(create_model).parameters)
    assert not own & set(record.settings()), "these settings could never be reached"
    assert set(record.laptop) <= set(record.settings())
