"""Ready weights: small networks trained here, shipped with the package, each with a card that says where it is from."""

from torchcaps.pretrained.cards import Card, find_card, list_pretrained
from torchcaps.pretrained.create import create_model
from torchcaps.pretrained.samples import Samples, load_samples

__all__ = ["Card", "Samples", "create_model", "find_card", "list_pretrained", "load_samples"]
