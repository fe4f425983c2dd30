"""torchcaps: capsule networks on PyTorch, built, trained, attacked and compared on equal terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchcaps.errors import TorchcapsError
from torchcaps.runtime import tune_process

if TYPE_CHECKING:
    from torchcaps.data import load_dataset
    from torchcaps.export import export_model
    from torchcaps.models import Model, Output, list_models
    from torchcaps.prediction import predict
    from torchcaps.pretrained import create_model, list_pretrained
    from torchcaps.pretrained.hub import from_pretrained, push_to_hub, save_pretrained
    from torchcaps.train import load

__version__ = "0.1.0"
__all__ = [
    "Model",
    "Output",
    "TorchcapsError",
    "create_model",
    "export_model",
    "from_pretrained",
    "list_models",
    "list_pretrained",
    "load",
    "load_dataset",
    "predict",
    "push_to_hub",
    "save_pretrained",
]

# What is imported only when used: torch alone takes more than a second.
_LAZY = {
    "Model": "torchcaps.models",
    "Output": "torchcaps.models",
    "create_model": "torchcaps.pretrained.loading",
    "export_model": "torchcaps.export",
    "from_pretrained": "torchcaps.pretrained.hub",
    "list_models": "torchcaps.models",
    "list_pretrained": "torchcaps.pretrained.cards",
    "load": "torchcaps.train",
    "predict": "torchcaps.prediction",
    "load_dataset": "torchcaps.data",
    "push_to_hub": "torchcaps.pretrained.hub",
    "save_pretrained": "torchcaps.pretrained.hub",
}

tune_process()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'torchcaps' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
