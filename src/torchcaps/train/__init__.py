"""Training: settings, the loop, checkpoints and the folder of a run."""

from torchcaps.train.config import RunConfig, read_settings, resolve
from torchcaps.train.interrupt import Interrupted
from torchcaps.train.load import load
from torchcaps.train.loop import fit, training_sets
from torchcaps.train.metrics import Line, read_lines
from torchcaps.train.run_folder import RunFolder, fresh_path, new_run, open_run
from torchcaps.train.validate import Measured, measure

__all__ = [
    "Interrupted",
    "Line",
    "Measured",
    "RunConfig",
    "RunFolder",
    "fit",
    "fresh_path",
    "load",
    "measure",
    "new_run",
    "open_run",
    "read_lines",
    "read_settings",
    "resolve",
    "training_sets",
]
