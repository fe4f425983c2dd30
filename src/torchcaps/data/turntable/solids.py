"""Solids as signed distances: how far a point is from the surface, negative inside.

https://iquilezles.org/articles/distfunctions/ describes the idea. Points come as three arrays x, y, z of one
shape; numpy, single precision, and only + - * / sqrt min max, which give the same bits on every machine.
Lengths are in the solid's own units; x points forward, y to the left, z upward.
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
        """Whether the part is there twice, left and right (y and -y)."""

    def distance(self, x: Array, y: Array, z: Array) -> Array: ...


@dataclass(frozen=True)
class Limb:
    """A rod with round ends from one point to another, and a radius at each."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float
    mirrored: bool = False

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        along = [b - a for a, b in zip(self.start, self.end, strict=True)]
        px, py, pz = x - np.float32(self.start[0]), y - np.float32(self.start[1]), z - np.float32(self.start[2])
        reach = 1 / max(sum(step * step for step in along), 1e-12)
        slope = (self.start_radius - self.end_radius) * reach**0.5
        share = px * np.float32(along[0] * reach)
        share += py * np.float32(along[1] * reach)
        share += pz * np.float32(along[2] * reach)
        np.clip(share, 0, 1, out=share)  # 0 at the start, 1 at the end
        px -= share * np.float32(along[0])
        py -= share * np.float32(along[1])
        pz -= share * np.float32(along[2])
        share *= np.float32(self.start_radius - self.end_radius)
        share -= np.float32(self.start_radius)
        share += vector_length(px, py, pz)
        share *= np.float32((1 + slope * slope) ** -0.5)  # a cone is nearer than straight to its axis
        return share


@dataclass(frozen=True)
class Block:
    """A box with rounded edges. ``taper`` is the share by which it is shorter and narrower at its top.

    ``slide`` moves the top forward; ``sweep`` moves the outer (left) end backward, as on an airplane's wing.
    """

    centre: Point
    half: Point
    rounding: float
    taper: float = 0.0
    slide: float = 0.0
    sweep: float = 0.0
    mirrored: bool = False

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        dx, dy, dz = (np.float32(value) for value in self.centre)
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
        # Slanting stretches space, so distances come out too long by at most the slant's largest singular value:
        # shorten them by it, so that no ray steps through.
        slant_x, slant_y = (abs(self.slide) + abs(self.taper) * hx) / (2 * hz), abs(self.taper) * hy / (2 * hz)
        slant = (slant_x**2 + slant_y**2 + self.sweep**2) ** 0.5
        outside *= np.float32(2 / (slant + (slant**2 + 4) ** 0.5))
        return outside


@dataclass(frozen=True)
class Wheel:
    """A flat cylinder with rounded edges, its axis along y."""

    centre: Point
    radius: float
    half_width: float
    mirrored: bool = True

    def distance(self, x: Array, y: Array, z: Array) -> Array:
        rounding = 0.3 * self.half_width
        px, pz = x - np.float32(self.centre[0]), z - np.float32(self.centre[2])
        round_part = np.sqrt(px * px + pz * pz) - np.float32(self.radius - rounding)
        flat_part = np.abs(y - np.float32(self.centre[1])) - np.float32(self.half_width - rounding)
        inside = np.minimum(np.maximum(round_part, flat_part), 0)
        np.maximum(round_part, 0, out=round_part)
        np.maximum(flat_part, 0, out=flat_part)
        edge: Array = np.sqrt(round_part * round_part + flat_part * flat_part)
        edge += inside
        edge -= np.float32(rounding)
        return edge


def vector_length(x: Array, y: Array, z: Array) -> Array:
    """The length of vectors."""
    total: Array = x * x
    total += y * y
    total += z * z
    np.sqrt(total, out=total)
    return total


@dataclass(frozen=True)
class Solid:
    """Parts joined together, scaled and moved so that they stand on z = 0, inside a box round the z axis."""

    parts: Sequence[Primitive]
    scale: float = 1.0
    offset: Point = (0.0, 0.0, 0.0)  # in the parts' units, before scaling
    reach: Point = (1.0, 1.0, 1.0)  # the box: half its length, half its width, all of its height

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
    """Points of a grid from one corner to the other that lie in the solid or nearer to it than the grid is wide."""
    axes = [np.linspace(a, b, points, dtype=np.float32) for a, b in zip(low, high, strict=True)]
    x, y, z = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    inside = Solid(parts).distance(x, y, z) < (high - low).max() / (points - 1)
    return np.stack([x[inside], y[inside], z[inside]])


def stand_up(parts: Sequence[Primitive]) -> Solid:
    """Scale and move parts so that they stand on the ground, the middle of their box on the z axis, within reach 1.

    The box is found on a grid, first a coarse one, then a fine one where the coarse one found something.
    """
    corner = np.full(3, 2.5, dtype=np.float32)
    rough = filled(parts, -corner, corner, 32)
    found = filled(parts, rough.min(axis=1), rough.max(axis=1), 48)
    low, high = found.min(axis=1), found.max(axis=1)
    spacing = (high - low).max() / 47
    low, high = low + spacing / 2, high - spacing / 2  # points up to one spacing outside were counted
    middle = (low + high) / 2
    scale = 1 / float(vector_length(*(found - middle[:, None])).max())
    reach = (high - low) / 2 * scale + 2 * spacing * scale
    offset = (float(middle[0]), float(middle[1]), float(low[2]))
    return Solid(parts, scale, offset, (float(reach[0]), float(reach[1]), 2 * float(reach[2])))
