"""Model cards: what a network is, how it was trained and how to use it.

The contents come from the files of the run, or from the card of pretrained weights; the Hub reads the front matter.
"""

from __future__ import annotations

from typing import Any

import yaml

from torchcaps.errors import TorchcapsError
from torchcaps.models import models
from torchcaps.pretrained.loading import TrainedModel, describe_input
from torchcaps.train import RunConfig
from torchcaps.train.config import resolve

LIBRARY = "torchcaps"
# Settings that depend on the machine: a recipe does without them.
OF_THE_MACHINE = ("device", "precision", "devices", "nodes", "strategy", "save_minutes")
LONGEST_LIST = 20  # class names that are listed


def model_card(trained: TrainedModel, *, load_with: str, sha256: str) -> str:
    """Return the text of the card; ``load_with`` is the Python code that loads the model."""
    config, record = trained.config, models.get(trained.config.model)
    front = yaml.safe_dump(_front_matter(trained), sort_keys=False, allow_unicode=True)
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    return f"""---
{front}---

# {trained.name}

{config.model}: {record.description} (paper: {record.paper}). In {config.size} size, {parameters:,} parameters; trained
on `{config.data}`.

## Use

```python
import torch, torchcaps

model = {load_with}
images = torch.rand(2, {", ".join(map(str, config.image_shape))})
scores = model(images).scores
```

Input: {describe_input(config.image_shape)}.

Output: scores of {_classes(config.class_names)}.

## Results

{_measured(trained.result)}

## Training

{_recipe(config)}{_made_by(trained.training)}

SHA-256 of the weights: `{sha256}`
"""


def _front_matter(trained: TrainedModel) -> dict[str, Any]:
    task, data = "image-classification", trained.config.data.partition(":")[0]
    front: dict[str, Any] = {
        "library_name": "torchcaps",
        "pipeline_tag": task,
        "tags": ["capsule-network", task, trained.config.model],
        "datasets": [data],
        "metrics": ["accuracy"],
    }
    if "test_accuracy" in trained.result:
        found = {"type": "accuracy", "name": "test accuracy", "value": float(trained.result["test_accuracy"])}
        measured = {"task": {"type": task}, "dataset": {"type": data, "name": data}, "metrics": [found]}
        front["model-index"] = [{"name": trained.name, "results": [measured]}]
    return front


def _classes(names: tuple[str, ...]) -> str:
    if len(names) > LONGEST_LIST:
        return f"{len(names)} classes, named by `model.class_names`"
    return f"the classes {', '.join(f'`{name}`' for name in names)}"


def _measured(result: dict[str, Any]) -> str:
    if "test_accuracy" not in result:
        return "This model was not tested; run `torchcaps evaluate` on its run directory."
    rows = [
        ("test accuracy (all labels of an image must be correct)", f"{float(result['test_accuracy']):.2%}"),
        ("test images", f"{int(result['test_images']):,}"),
        ("weights selected on", str(result["selection_split"])),
        *([("license of the images", str(result["licence"]))] if "licence" in result else []),
    ]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows)])


def recipe_settings(config: RunConfig) -> dict[str, Any] | None:
    """Return the settings that ``torchcaps train`` needs to train the model again; all others have their defaults.

    None if settings alone are not enough: for the user's own images, models of Python, and fine-tuning.
    """
    chosen = {"model": config.model, "data": config.data, "size": config.size}
    if ":" in config.data or config.start_from is not None:
        return None
    try:
        defaults = resolve(**chosen).model_dump(mode="json")
    except TorchcapsError:  # the model or the dataset exists only in Python
        return None
    given = config.model_dump(mode="json", exclude=set(OF_THE_MACHINE))
    return chosen | {key: value for key, value in given.items() if value != defaults[key]}


def _recipe(config: RunConfig) -> str:
    settings = recipe_settings(config)
    if settings is None:
        return ""
    lines = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return f"""Save these settings as `settings.yaml`:

```yaml
{lines}```

All others have their defaults:

```sh
torchcaps train --config settings.yaml
```

"""


def _made_by(training: dict[str, Any]) -> str:
    if not training:
        return "The training was not recorded."
    versions = ", ".join(f"{name} {version}" for name, version in training["versions"].items())
    return f"""These weights were trained by

```text
{training["command"]}
```

at commit {training["commit"]}, with {versions}, on {training["processor"]} ({training["cores"]} cores)."""
