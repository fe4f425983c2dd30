"""Settings on the command line, of a model and of its training."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchcaps.cli.settings import TRAINING_SETTINGS, merge_nested, merge_settings, nested, parse_settings
from torchcaps.errors import TorchcapsError
from torchcaps.models import models
from torchcaps.train import RunConfig


def test_settings_of_each_model() -> None:
    text = "routing=uniform,routing_options.iterations=3,learning_rate=0.002,hidden=[8, 16],filters=4"
    training, options = parse_settings("capsnet", text)
    assert training == {"learning_rate": 0.002}
    assert options == {
        "routing": "uniform", "routing_options": {"iterations": 3}, "hidden": [8, 16], "filters": 4
    }  # fmt: skip
    with pytest.raises(
        TorchcapsError, match="setting of capsnet 'learning_rat' is unknown: did you mean 'learning_rate'"
    ):
        parse_settings("capsnet", "learning_rat=1")
    with pytest.raises(TorchcapsError, match="should be written NAME=VALUE"):
        parse_settings("capsnet", "routing")
    assert nested("a.b.c", 1) == {"a": {"b": {"c": 1}}}
    assert merge_nested({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}, "c": 4}) == {"a": {"b": 1, "d": 3}, "c": 4}


def test_set_takes_settings_of_the_model_and_of_its_training(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("epochs: 2\nreconstruction_weight: 0.1\noptions: {filters: 8}\n")
    given = ["optimizer=adamw", "reconstruction_weight=0.005", "routing_options.iterations=2"]
    assert merge_settings(tmp_path / "settings.yaml", given, {"epochs": 3, "steps": None}) == {
        "epochs": 3,
        "reconstruction_weight": 0.005,
        "optimizer": "adamw",
        "options": {"filters": 8, "routing_options": {"iterations": 2}},
    }


def test_no_setting_of_a_model_has_the_name_of_one_of_the_training() -> None:
    assert set(TRAINING_SETTINGS) <= set(RunConfig.model_fields)
    for record in models:
        assert not set(TRAINING_SETTINGS) & set(record.settings()), record.name
