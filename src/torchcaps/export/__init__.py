"""Models as files for other programs: ONNX and torch.export, checked against PyTorch before they are in place."""

from torchcaps.export.write import FORMATS, Exported, export_model

__all__ = ["FORMATS", "Exported", "export_model"]
