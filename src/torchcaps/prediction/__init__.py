"""Prediction: what a trained model says about pictures in files, how sure it is, and of which it is least sure."""

from torchcaps.prediction.answers import Answer, Predictions, predict
from torchcaps.prediction.sheet import draw_least_sure
from torchcaps.prediction.table import write_csv

__all__ = ["Answer", "Predictions", "draw_least_sure", "predict", "write_csv"]
