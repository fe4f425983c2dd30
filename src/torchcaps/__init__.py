"""torchcaps: capsule networks on PyTorch, built, trained, attacked and compared on equal terms.

``import torchcaps`` is fast and changes nothing in the process: packages and functions load when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchcaps.errors import TorchcapsError
from torchcaps.runtime import lazy_exports, tune_process

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
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "attacks": (),
        "data": ("load_dataset",),
        "export": ("export_model",),
        "functional": (),
        "layers": (),
        "losses": (),
        "models": ("Model", "Output", "create_model", "list_models"),
        "prediction": ("predict",),
        "pretrained": ("list_pretrained",),
        "pretrained.hub": ("from_pretrained", "push_to_hub", "save_pretrained"),
        "routing": (),
        "train": ("fit", "load"),
    },
)
