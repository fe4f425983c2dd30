"""torchcaps: capsule networks on PyTorch, built, trained, attacked and compared on equal terms.

``import torchcaps`` is fast and changes nothing in the process: packages and functions load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchcaps.errors import TorchcapsError
from torchcaps.runtime import tune_process

if TYPE_CHECKING:
    from torchcaps import attacks, data, functional, layers, losses, models, routing
    from torchcaps.data import load_dataset
    from torchcaps.export import export_model
    from torchcaps.models import Model, Output, create_model, list_models
    from torchcaps.prediction import predict
    from torchcaps.pretrained import list_pretrained
    from torchcaps.pretrained.hub import from_pretrained, push_to_hub, save_pretrained
    from torchcaps.train import fit, load

__version__ = "0.2.0"
__all__ = [
    "Model",
    "Output",
    "TorchcapsError",
    "attacks",
    "create_model",
    "data",
    "export_model",
    "fit",
    "from_pretrained",
    "functional",
    "layers",
    "list_models",
    "list_pretrained",
    "load",
    "load_dataset",
    "losses",
    "models",
    "predict",
    "push_to_hub",
    "routing",
    "save_pretrained",
    "tune_process",
]

# Imported when first used: importing torch alone takes more than a second.
_PACKAGES = ("attacks", "data", "functional", "layers", "losses", "models", "routing")
_FUNCTIONS = {
    "Model": "torchcaps.models",
    "Output": "torchcaps.models",
    "create_model": "torchcaps.models",
    "export_model": "torchcaps.export",
    "fit": "torchcaps.train",
    "from_pretrained": "torchcaps.pretrained.hub",
    "list_models": "torchcaps.models",
    "list_pretrained": "torchcaps.pretrained.cards",
    "load": "torchcaps.train",
    "load_dataset": "torchcaps.data",
    "predict": "torchcaps.prediction",
    "push_to_hub": "torchcaps.pretrained.hub",
    "save_pretrained": "torchcaps.pretrained.hub",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"torchcaps.{name}")
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'torchcaps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
