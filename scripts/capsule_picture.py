"""Draw the figure that explains capsules: two parts vote for two wholes. Called by scripts/diagrams.py

A boat and a house consist of the same parts, a rectangle and a triangle, at different positions. Each part votes for
the pose of each whole, given its own pose. The votes are computed, not drawn by hand: they agree for the boat and
disagree for the house.
"""

from __future__ import annotations

from math import cos, radians, sin

from drawing import arrow, words, write_picture

Pose = tuple[float, float, float]  # x, y, angle in degrees
# Poses of the parts in an upright whole at the origin.
WHOLES: dict[str, dict[str, Pose]] = {
    "boat": {"rectangle": (0, 26, 0), "triangle": (4, -20, 90)},
    "house": {"rectangle": (0, 20, 0), "triangle": (0, -22, 0)},
}
SHAPES = {"rectangle": [(-36, -14), (36, -14), (36, 14), (-36, 14)], "triangle": [(-34, 20), (34, 20), (0, -26)]}
FOUND: Pose = (0, 0, -18)  # pose of the boat in the figure
HEIGHT = 312
OUTCOME = "Routing assigns the parts to the boat."
WHOSE = "Blue: vote of the rectangle. Orange: of the triangle."


def compose(outer: Pose, inner: Pose) -> Pose:
    """Compose two poses: inner is relative to outer."""
    x, y, angle = outer
    turn = radians(angle)
    return (
        x + inner[0] * cos(turn) - inner[1] * sin(turn),
        y + inner[0] * sin(turn) + inner[1] * cos(turn),
        angle + inner[2],
    )


def vote(part: Pose, whole: str, kind: str) -> Pose:
    """Pose of the whole, given the pose of one of its parts."""
    x, y, angle = WHOLES[whole][kind]
    turn = radians(-angle)
    inverse = (-(x * cos(turn) - y * sin(turn)), -(x * sin(turn) + y * cos(turn)), -angle)
    return compose(part, inverse)


def shape(kind: str, pose: Pose, style: str) -> str:
    """A part, outlined or filled."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in (compose(pose, (*point, 0)) for point in SHAPES[kind]))
    return f'<polygon class="part {style}" points="{points}"/>'


def outline(whole: str, pose: Pose, style: str) -> str:
    """The outline of a whole at a pose."""
    return "".join(shape(kind, compose(pose, place), style) for kind, place in WHOLES[whole].items())


def panel(x: float, width: float, title: str, below: list[str]) -> str:
    frame = f'<rect class="frame" x="{x}" y="40" width="{width}" height="{HEIGHT - 104}"/>'
    lines = [words(x + width / 2, HEIGHT - 38 + 18 * k, line, "small") for k, line in enumerate(below)]
    return frame + words(x + width / 2, 26, title, "title") + "".join(lines)


def at(x: float, y: float, content: str, scale: float = 1.0) -> str:
    return f'<g transform="translate({x},{y}) scale({scale})">{content}</g>'


def capsule(x: float, y: float, name: str, length: float, said: str) -> str:
    """A class capsule as an arrow: the length is the probability, the direction the pose."""
    turn = radians(-30)
    tip = (x + 100 * length * cos(turn), y + 100 * length * sin(turn))
    return (
        arrow(f"M{x},{y} L{tip[0]:.0f},{tip[1]:.0f}").replace('class="arrow"', 'class="arrow" stroke-width="2"')
        + words(x - 6, y + 24, name, anchor="start")
        + words(x - 6, y + 42, said, "small", "start")
    )


def main() -> None:
    parts = {kind: compose(FOUND, place) for kind, place in WHOLES["boat"].items()}
    image = "".join(shape(kind, pose, f"{kind} solid") for kind, pose in parts.items())
    votes = {whole: {kind: vote(parts[kind], whole, kind) for kind in parts} for whole in WHOLES}
    drawn = [
        panel(10, 230, "1. Parts are found", ["The capsule of a part encodes", "its position and rotation."]),
        at(125, 150, image, 1.25),
        panel(276, 350, "2. Each part votes for a whole", ["W maps the pose of a part to that of the whole.", WHOSE]),
        panel(
            662,
            228,
            "3. Agreement decides",
            ["Length: probability. Direction: pose.", OUTCOME],
        ),
        capsule(700, 120, "boat", 0.95, "long: present"),
        capsule(700, 194, "house", 0.25, "short: absent"),
    ]
    for column, whole, answer in ((362, "boat", "they agree"), (536, "house", "they do not")):
        both = "".join(
            outline(whole, pose, f"{kind}{' dashed' if kind == 'triangle' else ''}")
            for kind, pose in votes[whole].items()
        )
        # Center both votes in their half of the panel.
        middle = [sum(pose[axis] for pose in votes[whole].values()) / 2 for axis in (0, 1)]
        drawn.append(at(column, 132, at(-middle[0], -middle[1], both), 1.1))
        drawn += [words(column, 216, f"a {whole}?"), words(column, 234, answer, "small")]
    drawn += [arrow(f"M{x},150 L{x + 26},150") for x in (244, 630)]
    write_picture("capsules", 900, HEIGHT, "Two parts vote for two wholes, and agree on one", drawn)


if __name__ == "__main__":
    main()
