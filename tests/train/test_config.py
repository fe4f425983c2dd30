from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps.sklearn import CapsuleClassifier
from torchcaps.train import RunConfig, read_settings, resolve, sampler
from torchcaps.train.optimizers import make_optimizer, make_schedule
from torchcaps.train.sampler import batch_indices, epoch_permutation, steps_per_epoch


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no model was given"),
        ({"model": "capsnett"}, "model 'capsnett' is unknown: did you mean 'capsnet'"),
        ({"model": "capsnet", "data": "mnits"}, "dataset 'mnits' is unknown: did you mean 'mnist'"),
        ({"model": "capsnet", "epoch": 3}, "setting 'epoch' is unknown: did you mean 'epochs'"),
        ({"model": "capsnet", "epochs": 0}, "setting 'epochs' is 0"),
        ({"model": "capsnet", "epochs": "many"}, "setting 'epochs' is 'many'"),
        ({"model": "capsnet", "size": "huge"}, "setting 'size' is 'huge'.*'paper' or 'laptop'"),
        ({"model": "capsnet", "loss": "margn"}, "loss 'margn' is unknown: did you mean 'margin'"),
        ({"model": "capsnet", "optimizer": "adem"}, "optimizer 'adem' is unknown: did you mean 'adam'"),
        ({"model": "capsnet", "schedule": "step:0.5"}, "should be written as step:FACTOR:EVERY"),
        ({"model": "capsnet", "schedule": "one-cycle:0.01"}, "should be written as one-cycle:PEAK:WARMUP"),
        ({"model": "capsnet", "schedule": "one-cycle:0.01:1"}, "one-cycle:PEAK:WARMUP.* WARMUP must be below 1"),
        (
            {"model": "capsnet", "schedule": "one-cycle:0.01:0.1", "learning_rate": 0.1},
            "one-cycle:0.01:0.1.* 0.1.*omit",
        ),
        ({"model": "capsnet", "augmentation": "shift"}, "shift=NUMBER"),
        ({"model": "capsnet", "clip_norm": 0}, "setting 'clip_norm' is 0"),
        ({"model": "capsnet", "weight_decay": -1}, "setting 'weight_decay' is -1"),
        ({"model": "capsnet", "learning_rate": float("nan")}, "setting 'learning_rate' is nan"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        resolve(**settings)


def test_python_and_the_command_have_the_same_default_size() -> None:
    command = RunConfig.model_fields["size"].default
    for function in (create_model, CapsuleClassifier):
        assert inspect.signature(function).parameters["size"].default == command


def test_what_is_not_given_comes_from_the_recipe() -> None:
    config = resolve(model="capsnet", data="mnist", size="paper")
    assert (config.loss, config.reconstruction_weight, config.batch_size) == ("margin", 0.0005, 128)
    assert config.augmentation == "shift=2"
    assert resolve(model="capsnet", batch_size=7).batch_size == 7


@pytest.mark.parametrize(
    "text", ["- a\n- b", "model: [", "!!python/object/apply:os.system ['true']", "1: 2", "\x00", "a: &x [*x]", ""]
)
def test_a_file_that_is_no_settings_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(TorchcapsError):
        resolve(**read_settings(path))


def test_schedules() -> None:
    assert [make_schedule("constant")(step) for step in (0, 1000)] == [1, 1]
    assert make_schedule("inverse:0.0001:0.75")(20_000) == pytest.approx(3**-0.75)
    assert make_schedule("exponential:0.96:1000")(500) == pytest.approx(0.96**0.5)
    assert [make_schedule("step:0.5:1000")(step) for step in (0, 999, 1000, 2000)] == [1, 1, 0.5, 0.25]


def test_one_cycle_warms_up_holds_and_decays_to_zero() -> None:
    rates = make_schedule("one-cycle:0.02:0.1", 1e-3, 1000)
    assert [rates(step) for step in (0, 49, 99, 300)] == pytest.approx([0.0002, 0.01, 0.02, 0.02])
    assert [rates(step) for step in (650, 999, 1000)] == pytest.approx([0.01, 0.02 / 700, 0])
    assert make_schedule("one-cycle:0.02:0.5", 1e-3, 1000)(750) == pytest.approx(0.01), "the decay follows the warm-up"
    assert 0 < make_schedule("one-cycle:0.02:0.1", 1e-3, 1)(0) <= 0.02, "a run of a single step"
    config = resolve(model="capsnet", schedule="one-cycle:0.004:0.1")
    assert config.learning_rate == 0.004
    assert resolve(model="capsnet", schedule="one-cycle:4e-3:0.1", learning_rate=0.004).learning_rate == 0.004


def test_weight_decay_replaces_the_optimizers_default() -> None:
    model = nn.Linear(2, 2)
    for optimizer, given, wanted in [("adam", None, 0), ("adam", 2e-7, 2e-7), ("adamw", None, 0.01), ("adamw", 0, 0)]:
        config = resolve(model="capsnet", optimizer=optimizer, weight_decay=given)
        assert make_optimizer(model, config).param_groups[0]["weight_decay"] == wanted


def test_an_epoch_sees_every_image_once() -> None:
    steps = steps_per_epoch(103, 10)
    assert steps == 11
    for epoch in (0, 1):
        seen = [i for step in range(steps) for i in batch_indices(103, 10, 7, epoch * steps + step).tolist()]
        assert sorted(seen) == list(range(103))
    assert epoch_permutation(103, 7, 0).tolist() != epoch_permutation(103, 7, 1).tolist()
    assert epoch_permutation(103, 7, 0).tolist() != epoch_permutation(103, 8, 0).tolist()


def test_an_epoch_of_an_endless_set_sees_every_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MOST_PERMUTED", 10)
    for count in (100, 101, 96):
        seen = [i for step in range(steps_per_epoch(count, 7)) for i in batch_indices(count, 7, 3, step).tolist()]
        assert sorted(seen) == list(range(count))
    assert batch_indices(60_000_000, 128, 0, 400_000).max() < 60_000_000


def test_a_loss_for_one_label_is_refused_for_two() -> None:
    with pytest.raises(TorchcapsError, match="takes one label per image, but multimnist has 2: use 'margin' or 'bce'"):
        resolve(model="convnet-avg", data="multimnist", loss="cross-entropy")
    assert resolve(model="convnet-avg", data="multimnist").loss == "bce"
