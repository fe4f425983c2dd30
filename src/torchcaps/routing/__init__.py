"""Routings: one file each, and a registry of their records."""

from torchcaps.routing import (  # noqa: F401  (each registers its routing)
    attention,
    discriminative,
    dynamic,
    em,
    trainable,
    uniform,
)
from torchcaps.routing.base import LayerShape, Routed, Routing, RoutingRecord, create_routing, routings

__all__ = ["LayerShape", "Routed", "Routing", "RoutingRecord", "create_routing", "routings"]
