"""Draw the picture that explains capsules: two parts vote for two wholes. Run by scripts/diagrams.py

A boat and a house consist of the same parts, a rectangle and a triangle, in other places. Each part says
where either whole would have to be, since it was found where it was: W turns a part's pose into the whole's. The votes
are computed here, and not drawn as one would like them: for the boat they coincide, for the house they do not.
"""

from __future__ import annotations

from math import cos, radians, sin

from drawing import arrow, words, write_picture

Pose = tuple[float, float, float]  # x, y, angle in degrees
# Where the parts stand in a whole that is upright at the origin.
WHOLES: dict[str, dict[str, Pose]] = {
    "boat": {"rectangle": (0, 26, 0), "triangle": (4, -20, 90)},
    "house": {"rectangle": (0, 20, 0), "triangle": (0, -22, 0)},
}
SHAPES = {"rectangle": [(-36, -14), (36, -14), (36, 14), (-36, 14)], "triangle": [(-34, 20), (34, 20), (0, -26)]}
FOUND: Pose = (0, 0, -18)  # where the boat of the picture is
HEIGHT = 312
OUTCOME = "Routing sends the parts to the boat."
WHOSE = "Blue: the rectangle's vote. Orange: the triangle's."


def compose(outer: Pose, inner: Pose) -> Pose:
    """The pose of something inside a thing that has a pose itself."""
    x, y, angle = outer
    turn = radians(angle)
    return (
        x + inner[0] * cos(turn) - inner[1] * sin(turn),
        y + inner[0] * sin(turn) + inner[1] * cos(turn),
        angle + inner[2],
    )


def vote(part: Pose, whole: str, kind: str) -> Pose:
    """Where the whole must be if this part belongs to it: the part's place in it, taken back from the part's pose."""
    x, y, angle = WHOLES[whole][kind]
    turn = radians(-angle)
    inverse = (-(x * cos(turn) - y * sin(turn)), -(x * sin(turn) + y * cos(turn)), -angle)
    return compose(part, inverse)


def shape(kind: str, pose: Pose, style: str) -> str:
    """A part as an outline or filled."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in (compose(pose, (*point, 0)) for point in SHAPES[kind]))
    return f'<polygon class="part {style}" points="{points}"/>'


def outline(whole: str, pose: Pose, style: str) -> str:
    """A whole as it would stand at a pose."""
    return "".join(shape(kind, compose(pose, place), style) for kind, place in WHOLES[whole].items())


def panel(x: float, width: float, title: str, below: list[str]) -> str:
    frame = f'<rect class="frame" x="{x}" y="40" width="{width}" height="{HEIGHT - 104}"/>'
    lines = [words(x + width / 2, HEIGHT - 38 + 18 * k, line, "small") for k, line in enumerate(below)]
    return frame + words(x + width / 2, 26, title, "title") + "".join(lines)


def at(x: float, y: float, content: str, scale: float = 1.0) -> str:
    return f'<g transform="translate({x},{y}) scale({scale})">{content}</g>'


def capsule(x: float, y: float, name: str, length: float, said: str) -> str:
    """A class capsule as an arrow: its length says how sure it is, its direction holds the pose."""
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
        panel(10, 230, "1. Parts are found", ["A capsule for each part holds", "where it is and how it is turned."]),
        at(125, 150, image, 1.25),
        panel(276, 350, "2. Each part votes for a whole", ["W turns a part's pose into the whole's.", WHOSE]),
        panel(
            662,
            228,
            "3. Agreement decides",
            ["Length: how sure. Direction: the pose.", OUTCOME],
        ),
        capsule(700, 120, "boat", 0.95, "long: it is there"),
        capsule(700, 194, "house", 0.25, "short: it is not"),
    ]
    for column, whole, answer in ((362, "boat", "they agree"), (536, "house", "they do not")):
        both = "".join(
            outline(whole, pose, f"{kind}{' dashed' if kind == 'triangle' else ''}")
            for kind, pose in votes[whole].items()
        )
        # Moved so that the middle of both votes lies in the middle of its half of the panel.
        middle = [sum(pose[axis] for pose in votes[whole].values()) / 2 for axis in (0, 1)]
        drawn.append(at(column, 132, at(-middle[0], -middle[1], both), 1.1))
        drawn += [words(column, 216, f"a {whole}?"), words(column, 234, answer, "small")]
    drawn += [arrow(f"M{x},150 L{x + 26},150") for x in (244, 630)]
    write_picture("capsules", 900, HEIGHT, "Two parts vote for two wholes, and agree on one", drawn)


if __name__ == "__main__":
    main()
