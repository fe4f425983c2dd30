"""Solids as signed distance functions: the distance of a point from the surface, negative inside.

See https://iquilezles.org/articles/distfunctions/. Points are three float32 arrays x, y, z of one shape. Only
+ - * / sqrt min max are used, which give bit-identical results on every machine. Lengths are in the solid's own units;
x points forward, y to the left, z upward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Point = tuple[float, float, float]


class Primitive(Protocol):
    """One primitive of a solid."""

    @property
    def mirrored(self) -> bool:
        """Whether the primitive is mirrored at the plane y = 0."""

    def distance(self, x: Array, y: Array, z: Array) -> Array: ...


@dataclass(frozen=True)
class Limb:
    """A capsule from one point to another, with a radius at each end."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float
    mirrored: bool = False

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        along = [b - a for a, b in zip(self.start, self.end, strict=True)]
        px, py, pz = x - np.float32(self.start[0]), y - np.float32(self.start[1]), z - np.float32(self.start[2])
        inverse_square = 1 / max(sum(step * step for step in along), 1e-12)
        slope = (self.start_radius - self.end_radius) * inverse_square**0.5
        share = px * np.float32(along[0] * inverse_square)
        share += py * np.float32(along[1] * inverse_square)
        share += pz * np.float32(along[2] * inverse_square)
        np.clip(share, 0, 1, out=share)  # 0 at the start, 1 at the end
        px -= share * np.float32(along[0])
        py -= share * np.float32(along[1])
        pz -= share * np.float32(along[2])
        share *= np.float32(self.start_radius - self.end_radius)
        share -= np.float32(self.start_radius)
        share += vector_length(px, py, pz)
        share *= np.float32((1 + slope * slope) ** -0.5)  # the surface of a cone is not parallel to its axis
        return share


@dataclass(frozen=True)
class Block:
    """A box with rounded edges. ``taper`` is the fraction by which its top is shorter and narrower than its bottom.

    ``slide`` moves the top forward; ``sweep`` moves the outer (left) end backward, as on an airplane's wing.
    """

    center: Point
    half: Point
    rounding: float
    taper: float = 0.0
    slide: float = 0.0
    sweep: float = 0.0
    mirrored: bool = False

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        dx, dy, dz = (np.float32(value) for value in self.center)
        hx, hy, hz = (value - self.rounding for value in self.half)
        px, py, pz = x - dx, y - dy, z - dz
        if self.sweep:
            px += np.clip(py, -hy, hy) * np.float32(self.sweep)
        if self.taper or self.slide:
            height = np.clip(pz * np.float32(0.5 / hz) + np.float32(0.5), 0, 1)  # 0 at the bottom, 1 at the top
            px -= height * np.float32(self.slide)
            height *= np.float32(-self.taper)
            height += 1
            px, py = np.abs(px) - height * np.float32(hx), np.abs(py) - height * np.float32(hy)
        else:
            px, py = np.abs(px) - np.float32(hx), np.abs(py) - np.float32(hy)
        pz = np.abs(pz) - np.float32(hz)
        inside = np.minimum(np.maximum(np.maximum(px, py), pz), 0)
        outside = vector_length(np.maximum(px, 0), np.maximum(py, 0), np.maximum(pz, 0))
        outside += inside
        outside -= np.float32(self.rounding)
        # The shear overestimates distances by at most its largest singular value: divide by it, so that no ray steps
        # through the surface.
        slant_x, slant_y = (abs(self.slide) + abs(self.taper) * hx) / (2 * hz), abs(self.taper) * hy / (2 * hz)
        slant = (slant_x**2 + slant_y**2 + self.sweep**2) ** 0.5
        outside *= np.float32(2 / (slant + (slant**2 + 4) ** 0.5))
        return outside


@dataclass(frozen=True)
class Wheel:
    """A flat cylinder with rounded edges and its axis along y."""

    center: Point
    radius: float
    half_width: float
    mirrored: bool = True

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        rounding = 0.3 * self.half_width
        px, pz = x - np.float32(self.center[0]), z - np.float32(self.center[2])
        round_part = np.sqrt(px * px + pz * pz) - np.float32(self.radius - rounding)
        flat_part = np.abs(y - np.float32(self.center[1])) - np.float32(self.half_width - rounding)
        inside = np.minimum(np.maximum(round_part, flat_part), 0)
        np.maximum(round_part, 0, out=round_part)
        np.maximum(flat_part, 0, out=flat_part)
        edge: Array = np.sqrt(round_part * round_part + flat_part * flat_part)
        edge += inside
        edge -= np.float32(rounding)
        return edge


def vector_length(x: Array, y: Array, z: Array) -> Array:
    """Return the Euclidean length of vectors."""
    total: Array = x * x
    total += y * y
    total += z * z
    np.sqrt(total, out=total)
    return total


@dataclass(frozen=True)
class Solid:
    """A union of primitives, scaled and moved to stand on z = 0 inside a box around the z axis."""

    parts: Sequence[Primitive]
    scale: float = 1.0
    offset: Point = (0.0, 0.0, 0.0)  # in the parts' units, before scaling
    reach: Point = (1.0, 1.0, 1.0)  # of the box: half its length, half its width, its full height

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        shrink = np.float32(1 / self.scale)
        x, y, z = (value * shrink + np.float32(by) for value, by in zip((x, y, z), self.offset, strict=True))
        side = np.abs(y)
        nearest = self.parts[0].distance(x, side if self.parts[0].mirrored else y, z)
        for part in self.parts[1:]:
            np.minimum(nearest, part.distance(x, side if part.mirrored else y, z), out=nearest)
        nearest *= np.float32(self.scale)
        return nearest


def filled(parts: Sequence[Primitive], low: Array, high: Array, points: int) -> Array:
    """Return the points of a grid between two corners that are inside the solid or within one grid spacing of it."""
    axes = [np.linspace(a, b, points, dtype=np.float32) for a, b in zip(low, high, strict=True)]
    x, y, z = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    inside = Solid(parts).distance(x, y, z) < (high - low).max() / (points - 1)
    return np.stack([x[inside], y[inside], z[inside]])


def stand_up(parts: Sequence[Primitive]) -> Solid:
    """Scale and move parts to stand on z = 0, with their bounding box centered on the z axis and a radius of 1.

    The bounding box is found on a coarse grid, then refined on a fine one.
    """
    corner = np.full(3, 2.5, dtype=np.float32)
    rough = filled(parts, -corner, corner, 32)
    found = filled(parts, rough.min(axis=1), rough.max(axis=1), 48)
    low, high = found.min(axis=1), found.max(axis=1)
    spacing = (high - low).max() / 47
    low, high = low + spacing / 2, high - spacing / 2  # the grid includes points up to one spacing outside
    middle = (low + high) / 2
    scale = 1 / float(vector_length(*(found - middle[:, None])).max())
    reach = (high - low) / 2 * scale + 2 * spacing * scale
    offset = (float(middle[0]), float(middle[1]), float(low[2]))
    return Solid(parts, scale, offset, (float(reach[0]), float(reach[1]), 2 * float(reach[2])))
