"""Training: config, loop, checkpoints, metrics and the run directory."""

from torchcaps.train.callbacks import Callback
from torchcaps.train.config import RunConfig, read_settings, resolve
from torchcaps.train.fit import FitResult, fit
from torchcaps.train.loop import fit_run
from torchcaps.train.metrics import MetricRow, read_metrics, read_validation_metrics
from torchcaps.train.objective import AccuracyResult, evaluate_accuracy
from torchcaps.train.processes import Interrupted
from torchcaps.train.run_folder import (
    RunFolder,
    change_settings,
    is_free,
    is_main_process,
    load,
    move_images,
    new_run,
    new_run_path,
    open_run,
)
from torchcaps.train.splits import training_splits

__all__ = [
    "AccuracyResult",
    "Callback",
    "FitResult",
    "Interrupted",
    "MetricRow",
    "RunConfig",
    "RunFolder",
    "change_settings",
    "evaluate_accuracy",
    "fit",
    "fit_run",
    "is_free",
    "is_main_process",
    "load",
    "move_images",
    "new_run",
    "new_run_path",
    "open_run",
    "read_metrics",
    "read_settings",
    "read_validation_metrics",
    "resolve",
    "training_splits",
]
