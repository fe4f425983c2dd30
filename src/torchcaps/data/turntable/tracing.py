"""Render a solid on a table by sphere tracing, vectorized over the rays of several views.

Each ray advances by the distance to the solid until it hits it or leaves its bounding box (Hart 1996,
https://doi.org/10.1007/s003710050084). Finished rays are removed from the arrays. Camera rays are traced once per view;
each lighting adds only its shadow rays. Coordinates are the solid's: the camera moves around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.solids import Array, Solid

NEAR = 0.004  # a ray closer than this has hit the surface
SHADOW_STEP = 0.02  # minimum step of shadow rays: no part is thinner
DISTANCE, HALF_VIEW = 7.0, 1.12  # of the camera from the center, and half the width of its view there
EYES = 4.0  # degrees of azimuth between the two cameras
TABLE, TOY = 0.62, 0.5  # reflectance
STEPS = 64


@dataclass(frozen=True)
class Light:
    """One lighting: direction in degrees (azimuth 0 is the camera's), strength, and ambient light."""

    azimuth: float
    elevation: float
    strength: float
    ambient: float


LIGHTS = (
    Light(-50, 45, 0.9, 0.3),
    Light(60, 50, 0.9, 0.3),
    Light(150, 40, 0.8, 0.4),
    Light(-140, 55, 0.8, 0.35),
    Light(10, 75, 1.1, 0.2),
    Light(-95, 30, 0.7, 0.5),
)


def direction(azimuth: float, elevation: float) -> NDArray[np.float64]:
    """Return the unit vector of a direction in degrees."""
    turn, up = math.radians(azimuth), math.radians(elevation)
    return np.array([math.cos(up) * math.cos(turn), math.cos(up) * math.sin(turn), math.sin(up)])


def camera_rays(height: float, azimuth: float, elevation: float, size: int) -> tuple[Array, Array]:
    """Return the origin (3,) and ray directions (3, size * size) of a camera that looks at (0, 0, height)."""
    backward = direction(azimuth, elevation)
    right = np.array([-math.sin(math.radians(azimuth)), math.cos(math.radians(azimuth)), 0.0])
    up = np.cross(backward, right)
    across = ((np.arange(size) + 0.5) / size * 2 - 1) * HALF_VIEW / DISTANCE
    rows, columns = (grid.ravel() for grid in np.meshgrid(-across, across, indexing="ij"))
    rays = -backward[:, None] + right[:, None] * columns + up[:, None] * rows
    rays /= np.sqrt((rays * rays).sum(axis=0))
    origin = backward * DISTANCE + np.array([0.0, 0.0, height])
    return origin.astype(np.float32), rays.astype(np.float32)


def through_box(solid: Solid, points: Array, rays: Array) -> tuple[Array, Array]:
    """Return where rays enter and leave the bounding box, (N,) each; a ray that misses leaves before it enters."""
    long, wide, high = (np.float32(value) for value in solid.reach)
    enter = np.zeros(points.shape[1], dtype=np.float32)
    leave = np.full(points.shape[1], np.inf, dtype=np.float32)
    for axis, (low, top) in enumerate(((-long, long), (-wide, wide), (np.float32(0), high))):
        slope = np.where(np.abs(rays[axis]) < 1e-6, np.float32(1e-6), rays[axis])
        first, second = (low - points[axis]) / slope, (top - points[axis]) / slope
        np.maximum(enter, np.minimum(first, second), out=enter)
        np.minimum(leave, np.maximum(first, second), out=leave)
    return enter, leave


def march(solid: Solid, points: Array, rays: Array, start: Array, end: Array, least: float) -> Array:
    """Return the distance to the solid along each ray, infinite where it misses. Shapes (3, N), (N,).

    No step is shorter than ``least``.
    """
    result = np.full(start.shape, np.inf, dtype=np.float32)
    alive = np.flatnonzero(start < end)
    at, last = start[alive], end[alive]
    px, py, pz = points[:, alive]
    rx, ry, rz = rays[:, alive]
    for _ in range(STEPS):
        gap = solid.distance(px + at * rx, py + at * ry, pz + at * rz)
        arrived = (gap < NEAR) & (at < last)  # finished rays may still be in the arrays
        result[alive[arrived]] = at[arrived]
        at += np.maximum(gap, np.float32(least))
        last[arrived] = -1
        going = np.flatnonzero(at < last)
        if not going.size:
            break
        if going.size < 0.8 * at.size:  # compact the arrays only if that saves more than the copy costs
            alive, at, last = alive[going], at[going], last[going]
            px, py, pz, rx, ry, rz = (values[going] for values in (px, py, pz, rx, ry, rz))
    return result


def normals(solid: Solid, points: Array) -> Array:
    """Return unit surface normals, from four distances around each point. (3, N) to (3, N)."""
    total = np.zeros_like(points)
    for corner in ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)):
        near = [values + np.float32(NEAR * sign) for values, sign in zip(points, corner, strict=True)]
        gap = solid.distance(*near)
        for axis, sign in enumerate(corner):
            total[axis] += gap * np.float32(sign)
    total /= np.maximum(np.sqrt((total * total).sum(axis=0)), np.float32(1e-12))
    return total


def render(solid: Solid, azimuths: list[float], elevations: list[float], lights: list[Light], size: int) -> Array:
    """Render each view of a solid under every light. Shape (views, lights, size, size), values in [0, 1]."""
    cameras = [camera_rays(solid.reach[2] / 2, a, e, size) for a, e in zip(azimuths, elevations, strict=True)]
    rays = np.concatenate([ray for _, ray in cameras], axis=1)
    origins = np.concatenate([np.repeat(origin[:, None], size * size, axis=1) for origin, _ in cameras], axis=1)
    to_table = -origins[2] / rays[2]
    enter, leave = through_box(solid, origins, rays)
    far = march(solid, origins, rays, enter, np.minimum(leave, to_table), NEAR)
    on_toy = np.isfinite(far)
    points = origins + rays * np.where(on_toy, far, to_table)
    facing = np.zeros_like(points)
    facing[2] = 1
    facing[:, on_toy] = normals(solid, points[:, on_toy])
    color = np.where(on_toy, np.float32(TOY), np.float32(TABLE))
    shades = [shade(solid, points, facing, color, azimuths, light) for light in lights]
    return np.stack(shades, axis=1).reshape(len(cameras), len(lights), size, size)


def shade(solid: Solid, points: Array, facing: Array, color: Array, azimuths: list[float], light: Light) -> Array:
    """Return the brightness of every point under one light that moves with the camera. (views, pixels)."""
    towards = np.stack([direction(azimuth + light.azimuth, light.elevation) for azimuth in azimuths], axis=1)
    rays = np.repeat(towards.astype(np.float32), points.shape[1] // len(azimuths), axis=1)  # (3, N)
    slant = np.maximum((facing * rays).sum(axis=0), 0)
    start = points + facing * np.float32(4 * NEAR)  # offset from the surface against self-shadowing
    enter, leave = through_box(solid, start, rays)
    leave[slant == 0] = -1  # faces away from the light
    lit = np.isinf(march(solid, start, rays, enter, leave, SHADOW_STEP))
    sky = np.float32(light.ambient) * (np.float32(0.75) + np.float32(0.25) * facing[2])
    brightness: Array = color * (sky + np.float32(light.strength) * slant * lit)
    np.sqrt(np.clip(brightness, 0, 1), out=brightness)  # gamma correction
    return brightness.reshape(len(azimuths), -1)
