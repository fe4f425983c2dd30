"""Routings: one file each, and a registry of their records."""

from torchcaps.routing import dynamic, uniform  # noqa: F401  (each registers its routing)
from torchcaps.routing.base import LayerShape, Routed, Routing, RoutingRecord, create_routing, routings

__all__ = ["LayerShape", "Routed", "Routing", "RoutingRecord", "create_routing", "routings"]
