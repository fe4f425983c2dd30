"""Training: settings, the loop, checkpoints and the folder of a run."""

from torchcaps.train.callbacks import Callback
from torchcaps.train.config import RunConfig, read_settings, resolve
from torchcaps.train.loop import fit
from torchcaps.train.metrics import Line, read_lines, validation_lines
from torchcaps.train.objective import Measured, measure
from torchcaps.train.processes import Interrupted
from torchcaps.train.run_folder import (
    RunFolder,
    begin_run,
    fresh_path,
    is_first,
    is_free,
    load,
    move_run,
    new_run,
    open_run,
)
from torchcaps.train.splits import training_sets

__all__ = [
    "Callback",
    "Interrupted",
    "Line",
    "Measured",
    "RunConfig",
    "RunFolder",
    "begin_run",
    "fit",
    "fresh_path",
    "is_first",
    "is_free",
    "load",
    "measure",
    "move_run",
    "new_run",
    "open_run",
    "read_lines",
    "read_settings",
    "resolve",
    "training_sets",
    "validation_lines",
]
