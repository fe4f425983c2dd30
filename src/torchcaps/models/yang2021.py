"""CapsNet with discriminative routing.

Yang, Li, Yu: Routing Towards Discriminative Power of Class Capsules, 2021, https://arxiv.org/abs/2103.04278.

For CIFAR-10 the network has 64 primary capsule types, leaky ReLU and no decoder. For the "/FC" columns of the paper's
table use ``decoder="none"``, and a batch size of 32 on MNIST.
"""

from __future__ import annotations

from functools import partial

from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.models.sabour2017 import CapsNet

for penalty in ("l1", "l2"):
    discriminative = partial(CapsNet, routing=f"discriminative-{penalty}")
    models.add(
        ModelRecord(
            name=f"capsnet-{penalty}",
            description=f"CapsNet, couplings that climb toward the true class with an {penalty} penalty",
            paper="yang2021",
            build=discriminative,
            recipe=Recipe(loss="margin", reconstruction_weight=0.0005, schedule="step:0.5:1000"),
            laptop=models.get("capsnet").laptop,
            needs="labels in training",
        )
    )
    models.add(
        ModelRecord(
            name=f"capsnet-{penalty}-cifar10",
            description=f"capsnet-{penalty} with 64 primary types and a leaky rectifier, no decoder",
            paper="yang2021",
            build=partial(discriminative, types=64, rectifier="leaky-relu", decoder="none"),
            recipe=Recipe(loss="margin", schedule="step:0.96:1000"),
            laptop={"filters": 64, "types": 16},
            image=(3, 32, 32),
            needs="labels in training",
        )
    )
