"""Generate docs/gpu.md: python scripts/gpu_page.py

Its table is arithmetic: bytes and operations of a training step's routing layers, counted from the layers' shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchcaps import create_model
from torchcaps.layers import CapsuleLayer, CoordinateAddition

ROOT = Path(__file__).parents[1]
ITERATIONS, BATCH = 3, 32
ROWS_OF_A_TILE, SLOTS_OF_A_TILE = 2, 2  # of EM routing with 32 types of 16 elements
IMAGES_OF_A_TILE, CHILDREN_OF_A_TILE = 8, 2  # of dynamic routing with 10 types of 16 elements
PAGE = """# GPU kernels

On an NVIDIA GPU (compute capability 7.0 or newer) or an AMD GPU that PyTorch supports, EM routing and dynamic
routing run as [Triton](https://triton-lang.org) kernels: votes are computed from poses and W in registers, in every
pass, forward and backward, and never stored. PyTorch for CUDA installs Triton; with another build of PyTorch,
`pip install -e '.[gpu]'` does. `torchcaps doctor` lists the kernels that each routing uses, and
`TORCHCAPS_KERNELS=plain` disables them.

**No speed is claimed.** The kernels were written and tested without a GPU:

- They are interpreted on the CPU and compared with the plain definition, with its tolerances: results within 1e-5,
  gradients within 1e-4, for odd sizes, several positions, coordinates, clamped votes and half precision.
- They are compiled for `sm_80`, `sm_90` and `gfx942`; the assemblers report no spilled registers.
- On a GPU, the first use of each layer compares the kernels with the plain definition on random inputs, gradients
  included. If they fail or differ, a warning gives the reason, and plain PyTorch computes the layer.

`make test-gpu-kernels` repeats the first two. Measure the speed on your GPU with

```sh
torchcaps bench claims --device cuda
```

which trains matrix capsules and CapsNet in paper size with the kernels and with plain PyTorch, interleaved, and
writes the ratios of times, the peak memory of a step and the largest difference of a score to
`results/bench/gpu.json`; `--compile` adds torch.compile.

## What they do

A layer with P positions, I child slots at each, J parent types and poses of D elements has P I J D votes per image.

- **EM routing.** An M-step is one pass: assignments are recomputed from the previous means, variances and the
  logarithm of each child's normalizer, and mean and variance are updated vote by vote (Welford). An E-step is one
  pass that computes the normalizers. They are sums over all positions that see a child, so parents compete for it
  across positions. The backward pass takes two passes per iteration, and a last one that computes the gradients
  of poses
  and W for all iterations.
- **Dynamic routing.** The logits are the agreements with the sum of all earlier poses, so an iteration needs only
  that sum.
- Statistics per parent, and sums over chunks, are plain PyTorch. No sum uses atomics: the same batch gives the same
  bits.
- The kernels compute in float32, also under automatic mixed precision. float64, second derivatives, `torch.compile`
  and poses too large for registers use plain PyTorch.

## Arithmetic

Per image of a training step with {iterations} iterations and a batch of {batch}, which shares W, counted from the
shapes of the layers in paper size, in float32. The form that torch.compile makes of plain PyTorch stores the votes:
a reduction over them must end before the next one begins. Its bytes are a lower bound, in which each reduction is
one pass over the votes and everything between reductions is fused. "Memory" of the kernels is what each pass must
read and write once, if W and poses stay in cache during the pass; "cache" is what its programs request. The kernels
compute the votes again in every pass: about twice the operations for a fraction of the traffic.

{table}

The table is computed by `python scripts/gpu_page.py`; it is no measurement.
"""


@dataclass(frozen=True)
class Cost:
    """Bytes to and from memory, bytes that programs request from caches, and floating-point operations."""

    memory: float
    operations: float
    cache: float = 0.0


@dataclass(frozen=True)
class Layer:
    """Sizes of a capsule layer: P, I, J, D as above, children, their size, rows of W, and number of weights."""

    positions: int
    slots: int
    types: int
    size: int
    children: int
    child_size: int
    inner: int
    weights: int

    @property
    def votes(self) -> int:
        return self.positions * self.slots * self.types * self.size

    @property
    def statistics(self) -> int:
        return self.positions * self.types * self.size


def layers(name: str) -> list[Layer]:
    """The capsule layers of a model in paper size."""
    found = []
    for layer in create_model(name, size="paper").modules():
        if not isinstance(layer, CapsuleLayer):
            continue
        transform = layer.transform.transform if isinstance(layer.transform, CoordinateAddition) else layer.transform
        shape = transform.shape
        distinct = shape.positions * shape.children if shape.distinct is None else shape.distinct
        rows, inner = getattr(transform, "child_pose", (1, transform.weight.shape[1]))
        sizes = (shape.positions, shape.children, shape.parents, shape.size, distinct, rows * inner, inner)
        found.append(Layer(*sizes, transform.weight.numel()))
    return found


def compiled_em(layer: Layer, steps: int = ITERATIONS) -> Cost:
    """Votes are written, and read for every mean, variance and E-step.

    Backward they are read for the gradients of each M-step's assignments and of each E-step's statistics, and for their
    own gradient, which is written once and read twice, for poses and W.
    """
    forward = 1 + 2 * steps + (steps - 1)
    backward = steps + (steps - 1) + 4
    operations = 2 * layer.inner + 3 * (2 * steps + 4 * steps + 4 * (steps - 1)) + 4 * layer.inner
    return Cost(4 * (layer.votes * (forward + backward) + 3 * layer.weights / BATCH), layer.votes * operations)


def fused_em(layer: Layer, steps: int = ITERATIONS) -> Cost:
    """T M-steps and T-1 E-steps forward, two passes for each of T-1 iterations backward, and the last pass."""
    passes = steps + (steps - 1) + 2 * (steps - 1)
    per_slot = layer.positions * layer.slots * (layer.child_size + 4)  # the pose and a few numbers
    per_pass = (
        layer.child_size * layer.children + layer.weights / BATCH + 4 * layer.statistics + layer.positions * layer.slots
    )
    last = 2 * per_slot + layer.weights / BATCH + (4 * steps) * layer.statistics
    requested = per_slot + layer.votes / ROWS_OF_A_TILE + 4 * layer.statistics
    requested_last = 2 * per_slot + layer.votes * (2 + 4 * steps / SLOTS_OF_A_TILE)
    votes, distance = 2 * layer.inner, 4
    forward = steps * (votes + distance + 7) + (steps - 1) * (votes + distance)
    backward = (steps - 1) * ((votes + distance + 5) + (votes + distance + 5 + 5))
    finish = votes + steps * (distance + 5 + 9) + 2 * votes
    cost = 4 * (passes * per_pass + last), 4 * (passes * requested + requested_last)
    return Cost(cost[0], layer.votes * (forward + backward + finish), cost[1])


def compiled_dynamic(layer: Layer, steps: int = ITERATIONS) -> Cost:
    """Votes are written, and read for every sum and every agreement; backward, as in EM routing."""
    uses = steps + (steps - 1)
    backward = 2 * (steps - 1) + 4
    operations = 2 * layer.inner + 3 * 2 * uses + 4 * layer.inner
    return Cost(4 * (layer.votes * (1 + uses + backward) + 3 * layer.weights / BATCH), layer.votes * operations)


def fused_dynamic(layer: Layer, steps: int = ITERATIONS) -> Cost:
    """T passes forward, T-1 backward, and the last pass."""
    passes = steps + (steps - 1)
    pose = layer.child_size * layer.children
    per_pass = pose + layer.weights / BATCH + 3 * layer.statistics
    last = 2 * pose + 2 * layer.weights / BATCH + 2 * steps * layer.statistics
    requested = pose + layer.weights / IMAGES_OF_A_TILE + 3 * layer.statistics
    requested_last = 2 * pose + layer.weights + layer.votes * 2 * steps / CHILDREN_OF_A_TILE
    votes = 2 * layer.inner
    operations = steps * (votes + 4) + (steps - 1) * (votes + 6) + votes + steps * 8 + 2 * votes
    cost = 4 * (passes * per_pass + last), 4 * (passes * requested + requested_last)
    return Cost(cost[0], layer.votes * operations, cost[1])


def table() -> str:
    lines = ["| layer | form | memory, MB | cache, MB | operations, millions |", "| --- | --- | --: | --: | --: |"]
    for model, forms in (("matrix-capsnet", (compiled_em, fused_em)), ("capsnet", (compiled_dynamic, fused_dynamic))):
        for number, layer in enumerate(layers(model), 1):
            name = f"{model}, layer {number}: P={layer.positions}, I={layer.slots}, J={layer.types}, D={layer.size}"
            for form, what in zip(forms, ("torch.compile, at least", "Triton kernels"), strict=True):
                cost = form(layer)
                cache = f"{cost.cache / 1e6:,.1f}" if cost.cache else ""
                lines.append(f"| {name} | {what} | {cost.memory / 1e6:,.1f} | {cache} | {cost.operations / 1e6:,.0f} |")
    return "\n".join(lines)


def page() -> str:
    return PAGE.format(iterations=ITERATIONS, batch=BATCH, table=table())


if __name__ == "__main__":
    (ROOT / "docs" / "gpu.md").write_text(page(), encoding="utf-8")
