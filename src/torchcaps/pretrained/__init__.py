"""Pretrained weights: small networks that ship with the package, each with a card that says how it was trained."""

from torchcaps.pretrained.loading import Card, Samples, find_card, list_pretrained, load_pretrained, load_samples

__all__ = ["Card", "Samples", "find_card", "list_pretrained", "load_pretrained", "load_samples"]
