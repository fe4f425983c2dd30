"""Random toys of smallNORB's five categories, built from primitives.

The categories are four-legged animals, human figures, airplanes, trucks and cars. Each instance has random proportions
from wide ranges, so that instances differ as much as a giraffe and a pig, or a van and a racing car.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from torchcaps.data.datasets.viewpoints import CATEGORIES
from torchcaps.data.turntable.solids import Block, Limb, Point, Primitive, Solid, Wheel, stand_up

Draw = Callable[[float, float], float]  # draws a uniform number between two bounds


def make_toy(category: int, instance: int, seed: int) -> Solid:
    """Build one toy: a pure function of the arguments."""
    generator = np.random.default_rng([seed, category, instance])

    def draw(low: float, high: float) -> float:
        return float(low + (high - low) * generator.random())

    return stand_up(BUILDERS[CATEGORIES[category]](draw))


def away(start: Point, length: float, pitch: float, yaw: float = 0.0) -> Point:
    """Return the point at a distance from another; pitch is upward from horizontal, yaw left of forward (degrees)."""
    up, left = math.radians(pitch), math.radians(yaw)
    x, y, z = start
    flat = length * math.cos(up)
    return (x + flat * math.cos(left), y + flat * math.sin(left), z + length * math.sin(up))


def animal(draw: Draw) -> list[Primitive]:
    """A body on four legs, neck, head with ears or horns, tail."""
    long, thick = draw(0.35, 0.75), draw(0.14, 0.3)
    legs, leg_radius = draw(0.2, 0.75), draw(0.05, 0.11)
    hip = legs + thick
    front, back = (long, 0.0, hip + draw(-0.05, 0.12)), (-long, 0.0, hip)
    neck_end = away(front, draw(0.15, 0.75), draw(10, 75))
    head_radius = draw(0.1, 0.19)
    nose = away(neck_end, draw(0.12, 0.4), draw(-40, 5))
    stance = thick * draw(0.55, 0.8)
    ear = away((neck_end[0], head_radius * 0.6, neck_end[2]), draw(0.15, 0.35), draw(30, 80), draw(90, 150))
    return [
        Limb(back, front, thick * draw(0.8, 1.1), thick),
        Limb(front, neck_end, thick * 0.75, head_radius * 0.9),
        Limb(neck_end, nose, head_radius, head_radius * draw(0.45, 0.8)),
        Limb((front[0] - 0.05, stance, hip), (front[0] + draw(-0.1, 0.15), stance, 0), leg_radius, leg_radius, True),
        Limb((back[0] + 0.05, stance, hip), (back[0] + draw(-0.15, 0.1), stance, 0), leg_radius, leg_radius, True),
        Limb((neck_end[0], head_radius * 0.6, neck_end[2]), ear, draw(0.03, 0.07), 0.03, True),
        Limb(back, away(back, draw(0.15, 0.7), draw(-60, 50), 180), draw(0.03, 0.1), draw(0.02, 0.05)),
    ]


def human(draw: Draw) -> list[Primitive]:
    """Legs apart or in stride, trunk, bent arms, head, sometimes a backpack; a thin base plate."""
    legs, trunk, wide, thick = draw(0.55, 0.85), draw(0.4, 0.65), draw(0.16, 0.3), draw(0.1, 0.18)
    lean = draw(-12, 15)
    hip: Point = (0.0, 0.0, legs)
    shoulder = away(hip, trunk, 90 - lean)
    head_radius = draw(0.12, 0.19)
    limb = draw(0.06, 0.11)
    parts: list[Primitive] = [
        Limb((0, wide * 0.4, legs), (shoulder[0], wide * 0.6, shoulder[2]), thick, thick * draw(0.9, 1.2), True),
        Limb(hip, shoulder, thick * 1.1, thick * 1.1),
        Limb(shoulder, away(shoulder, head_radius + draw(0.15, 0.2), 90 - lean / 2), 0.07, head_radius),
        Block((0, 0, 0.0), (draw(0.25, 0.4), draw(0.25, 0.4), 0.04), 0.02),
    ]
    for side in (-1, 1):
        stride, bend = draw(-28, 28), draw(0, 40)
        knee = away((0, side * wide * 0.5, legs), legs * 0.5, -90 + stride)
        foot = away(knee, legs * 0.5, -90 + stride - bend)
        parts += [Limb((0, side * wide * 0.5, legs), knee, limb * 1.3, limb), Limb(knee, foot, limb, limb * 0.9)]
        joint: Point = (shoulder[0], side * (wide * 0.6 + thick), shoulder[2])
        elbow = away(joint, trunk * 0.55, draw(-90, 20), side * draw(0, 90))
        hand = away(elbow, trunk * 0.55, draw(-70, 80), side * draw(-30, 60))
        parts += [Limb(joint, elbow, limb, limb * 0.85), Limb(elbow, hand, limb * 0.85, limb * 0.8)]
    if draw(0, 1) < 0.4:
        back: Point = (shoulder[0] - thick - 0.1, 0, shoulder[2] - trunk * 0.3)
        parts.append(Block(back, (0.12, wide * 0.8, trunk * 0.35), 0.04))
    return parts


def airplane(draw: Draw) -> list[Primitive]:
    """A fuselage, high or low, straight or swept wings, a tail with fin, engines, landing gear."""
    long, thick = draw(0.7, 1.1), draw(0.09, 0.2)
    high = draw(0.2, 0.4) + thick
    span, chord, sweep = draw(0.55, 1.1), draw(0.12, 0.3), draw(-0.05, 0.7)
    wing_z = high + thick * draw(-0.7, 0.8)
    at = long * draw(-0.15, 0.3)
    tail_z = high + thick * draw(0.3, 0.7)
    tail_span = span * draw(0.3, 0.45)
    fin = draw(0.15, 0.32)
    parts: list[Primitive] = [
        Limb((long * 0.7, 0, high), (-long * 0.3, 0, high), thick, thick),
        Limb((-long * 0.3, 0, high), (-long, 0, tail_z), thick, thick * 0.35),
        Limb((long * 0.7, 0, high), (long, 0, high - thick * 0.2), thick, thick * draw(0.3, 0.7)),
        Block(
            (at - sweep * span / 2, span / 2, wing_z), (chord, span / 2 + 0.02, 0.035), 0.02, sweep=sweep, mirrored=True
        ),
        Block(
            (-long * 0.95, tail_span / 2, tail_z),
            (chord * 0.5, tail_span / 2, 0.03),
            0.02,
            sweep=sweep / 2,
            mirrored=True,
        ),
        Block((-long * 0.92, 0, tail_z + fin / 2), (chord * 0.5, 0.03, fin / 2 + 0.03), 0.02, slide=-draw(0.0, 0.25)),
        Limb((at, thick * 0.8, 0.05), (at, thick * 0.8, high), 0.05, 0.03, True),
        Limb((long * 0.65, 0, 0.05), (long * 0.65, 0, high), 0.05, 0.03),
    ]
    engines = int(draw(0, 3))
    for number in range(engines):
        out = span * (0.3 + 0.3 * number)
        x = at - sweep * out
        parts.append(Limb((x + chord, out, wing_z - 0.07), (x - 0.5 * chord, out, wing_z - 0.07), 0.07, 0.06, True))
    return parts


def truck(draw: Draw) -> list[Primitive]:
    """A cab, a load (box, tank, or open bed with or without a heap), four or six wheels."""
    long, wide = draw(0.65, 1.1), draw(0.24, 0.34)
    radius = draw(0.11, 0.2)
    floor = radius * draw(1.1, 1.5)
    cab_long, cab_high = draw(0.16, 0.28), draw(0.22, 0.4)
    cab_x = long - cab_long
    hood = draw(0.0, 0.3)
    load_long = (2 * long - 2 * cab_long - hood - 0.05) / 2
    load_x = -long + load_long
    top = draw(0.2, 0.55)
    parts: list[Primitive] = [
        Block((0, 0, floor), (long, wide * 0.7, 0.06), 0.02),
        Block(
            (cab_x - hood, 0, floor + cab_high),
            (cab_long, wide * 0.95, cab_high),
            0.05,
            draw(0.0, 0.2),
            draw(-0.1, 0.03),
        ),
        Block((cab_x, 0, floor + 0.15), (cab_long, wide * 0.85, draw(0.1, 0.18)), 0.05),
    ]
    kind = draw(0, 1)
    if kind < 0.4:
        parts.append(Block((load_x, 0, floor + top / 2 + 0.1), (load_long, wide, top / 2 + 0.1), 0.02))
    elif kind < 0.65:
        tank = wide * draw(0.8, 1.0)
        parts.append(Limb((-long + tank, 0, floor + tank), (load_x + load_long - tank, 0, floor + tank), tank, tank))
    else:
        side = draw(0.06, 0.14)
        parts.append(Block((load_x, 0, floor + 0.06), (load_long, wide, 0.05), 0.02))
        parts.append(Block((load_x, wide - 0.03, floor + side), (load_long, 0.03, side), 0.01, mirrored=True))
        if draw(0, 1) < 0.5:
            heap = draw(0.1, 0.3)
            parts.append(Block((load_x, 0, floor + heap / 2), (load_long * 0.9, wide * 0.85, heap), 0.05, 0.6))
    rear = [-long * 0.75, -long * 0.75 + 2.2 * radius] if draw(0, 1) < 0.5 else [-long * 0.65]
    for x in [long * draw(0.6, 0.75), *rear]:
        parts.append(Wheel((x, wide * 0.85, radius), radius, 0.07))
    return parts


def car(draw: Draw) -> list[Primitive]:
    """A low body, a cabin that slopes at both ends, four wheels, sometimes a spoiler or a roof rack."""
    long, wide = draw(0.65, 1.05), draw(0.3, 0.42)
    radius = draw(0.12, 0.2)
    low = draw(0.1, 0.19)
    floor = radius * draw(0.7, 1.2) + low
    cabin_long, cabin_high = long * draw(0.35, 0.75), draw(0.09, 0.22)
    cabin_x = long * draw(-0.35, 0.05)
    cabin_z = floor + low + cabin_high * 0.8
    axle = long * draw(0.55, 0.7)
    parts: list[Primitive] = [
        Block((0, 0, floor), (long, wide, low), 0.07, draw(0.0, 0.15)),
        Block((cabin_x, 0, cabin_z), (cabin_long, wide * 0.92, cabin_high), 0.05, draw(0.15, 0.5), draw(-0.1, 0.05)),
        Wheel((axle, wide * 0.92, radius), radius, 0.08),
        Wheel((-axle, wide * 0.92, radius), radius * draw(1.0, 1.25), 0.08),
    ]
    extra = draw(0, 1)
    if extra < 0.3:
        parts.append(Block((-long * 0.9, 0, floor + low + 0.12), (0.08, wide, 0.03), 0.015))
        parts.append(
            Limb((-long * 0.9, wide * 0.7, floor), (-long * 0.9, wide * 0.7, floor + low + 0.12), 0.03, 0.03, True)
        )
    elif extra < 0.5:
        rack = cabin_z + cabin_high + draw(0.05, 0.1)
        parts.append(Block((cabin_x, 0, rack), (cabin_long * 0.5, wide * 0.6, 0.05), 0.03))
    return parts


BUILDERS: dict[str, Callable[[Draw], list[Primitive]]] = {
    "animal": animal,
    "human": human,
    "airplane": airplane,
    "truck": truck,
    "car": car,
}
