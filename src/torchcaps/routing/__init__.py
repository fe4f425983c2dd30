"""Routings: one file per algorithm, and a registry of their records."""

from torchcaps.routing.attention import AttentionRouting
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Routed,
    Routing,
    RoutingRecord,
    create_routing,
    routings,
)
from torchcaps.routing.discriminative import DiscriminativeRouting
from torchcaps.routing.dynamic import DynamicRouting
from torchcaps.routing.em import EMRouting
from torchcaps.routing.heinsen import HeinsenRouting
from torchcaps.routing.inverted_attention import InvertedAttentionRouting
from torchcaps.routing.self_attention import SelfAttentionRouting
from torchcaps.routing.self_routing import SelfRouting
from torchcaps.routing.trainable import TrainableRouting
from torchcaps.routing.uniform import UniformRouting
from torchcaps.routing.variational_bayes import VariationalBayesRouting

__all__ = [
    "AttentionRouting",
    "DiscriminativeRouting",
    "DynamicRouting",
    "EMRouting",
    "HeinsenRouting",
    "InvertedAttentionRouting",
    "IterativeRouting",
    "LayerShape",
    "Routed",
    "Routing",
    "RoutingRecord",
    "SelfAttentionRouting",
    "SelfRouting",
    "TrainableRouting",
    "UniformRouting",
    "VariationalBayesRouting",
    "create_routing",
    "routings",
]
