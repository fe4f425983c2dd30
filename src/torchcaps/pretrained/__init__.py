"""Pretrained weights: small networks that ship with the package, each with a card that says how it was trained."""

from torchcaps.pretrained.cards import Card, Samples, find_card, list_pretrained, load_samples
from torchcaps.pretrained.loading import load_pretrained

__all__ = ["Card", "Samples", "find_card", "list_pretrained", "load_pretrained", "load_samples"]
