"""Parse settings on the command line: NAME=VALUE, for a model and its training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, unknown_name

# Settings of the training that --set takes, and that may differ between the models of a comparison.
TRAINING_SETTINGS = (
    "loss",
    "optimizer",
    "learning_rate",
    "schedule",
    "batch_size",
    "clip_norm",
    "weight_decay",
    "reconstruction_weight",
    "margin_pace",
    "balance",
)


def merge_settings(config: Path | None, options: list[str] | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Merge the settings of a file, the flags that were given, and NAME=VALUE of the model or its training."""
    from torchcaps.train import read_settings

    settings = read_settings(config) if config else {}
    settings |= {key: value for key, value in flags.items() if value is not None}
    for option in options or ():
        name, value = parse_option(option)
        if name in TRAINING_SETTINGS:
            settings[name] = value
        else:
            settings["options"] = merge_nested(settings.get("options", {}), nested(name, value))
    return settings


def nested(name: str, value: Any) -> dict[str, Any]:
    """A setting with dots in its name as nested dictionaries.

    >>> nested("routing_options.iterations", 3)
    {'routing_options': {'iterations': 3}}
    """
    first, dot, rest = name.partition(".")
    return {first: nested(rest, value) if dot else value}


def merge_nested(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both dictionaries; where both have a dictionary under a name, both of these, otherwise the second value."""
    merged = dict(first)
    for name, value in second.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge_nested(merged[name], value) if both else value
    return merged


def parse_settings(model: str, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the training and of the model, from NAME=VALUE,NAME=VALUE; commas in brackets do not separate."""
    from torchcaps.models.registry import BACKBONE_SETTINGS, models

    known = [*models.get(model).settings(), *BACKBONE_SETTINGS]
    training: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for part in filter(None, re.split(r",(?![^\[\](){}]*[\])}])", text)):
        name, value = parse_option(part)
        if name.partition(".")[0] in known:
            options = merge_nested(options, nested(name, value))
        elif name in TRAINING_SETTINGS:
            training[name] = value
        else:
            raise unknown_name(f"setting of {model}", name, [*known, *TRAINING_SETTINGS])
    return training, options


def parse_option(option: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE; the value is parsed as YAML: a number, a word or a list."""
    from torchcaps.files import parse_yaml

    name, sign, value = option.partition("=")
    if not sign:
        raise TorchcapsError(f"'{option}' should be written NAME=VALUE, such as routing=uniform")
    return name, parse_yaml(value, f"the value of '{option}'")
