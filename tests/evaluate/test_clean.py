from __future__ import annotations

import pytest

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.clean import reached_target, stop_at_accuracy
from torchcaps.train import resolve


def test_only_what_decides_when_to_stop_is_changed() -> None:
    config = resolve(model="tiny", data="turntable-azimuth", learning_rate=0.5, options={})
    stopped = stop_at_accuracy(config, 0.9922)
    assert (stopped.stop_at_accuracy, stopped.stop_on) == (0.9922, "validation")
    assert stopped.model_copy(update={"stop_at_accuracy": None}) == config
    assert stop_at_accuracy(config, 0.963, "familiar").stop_on == "familiar"
    with pytest.raises(TorchcapsError, match="split to stop on 'test' is unknown\\. One of: familiar, validation"):
        stop_at_accuracy(config, 0.9, "test")


def test_a_model_is_compared_only_where_all_its_seeds_got_there() -> None:
    assert reached_target([{"reached": True}, {"reached": True}])
    assert not reached_target([{"reached": True}, {"reached": False}])
    assert reached_target([{"reached": None}, {}]), (
        "runs that were to stop nowhere, also those made before there was a stop"
    )
