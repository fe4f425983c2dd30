"""Draw the diagrams of docs/architecture.md as SVG: python scripts/diagrams.py

The rooms and their arrows come from the rule that tests/test_imports.py holds, so that no drawing can lag behind it.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import capsule_picture
from drawing import HEIGHT, WIDTH, arrow, box, write_picture

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_imports import BOTTOM, MAY_USE

STEP, GAP, LANE = WIDTH + 26, 34, 30  # from one box to the next, between two rows, for an arrow that goes by
# What each room holds, in the room that a box has.
HOLDS = {
    "cli": "the torchcaps command",
    "prediction": "answers for your files",
    "export": "ONNX, torch.export",
    "hub": "the Hub's format",
    "sklearn": "CapsuleClassifier",
    "demo": "service and page",
    "reproduce": "the papers' tables",
    "compare": "one table, one report",
    "bench": "speed and memory",
    "evaluate": "what a run is worth",
    "analysis": "what capsules hold",
    "attacks": "one file each",
    "pretrained": "weights with cards",
    "train": "loop, checkpoints, runs",
    "testing": "checks for a routing",
    "models": "one file per paper",
    "losses": "output to one number",
    "layers": "transforms, decoder",
    "data": "datasets, checksums",
    "plugins": "your own file",
    "routing": "one file each",
    "functional": "tensors in, tensors out",
    "kernels": "fast forms",
}
WAY = [
    ("file", "verified by checksum"),
    ("ImageSet", "bytes in memory"),
    ("batch", "order from (seed, epoch)"),
    ("augmentation", "from (seed, step, rank)"),
    ("model", "pixels in [0, 1] to Output"),
    ("objective", "loss + reconstruction"),
    ("step", "only if all is finite"),
    ("checkpoint", "one file, atomic"),
    ("best weights", "chosen on validation"),
    ("result.json", "test, and what made it"),
    ("report", "table and figures"),
]


def used(room: str) -> set[str]:
    """The rooms that a room may use, without the bottom ones, which all may use."""
    return {other for other in MAY_USE[room] if other in MAY_USE and other not in BOTTOM}


@cache  # else each room is asked once for every way that leads to it
def reached(room: str) -> set[str]:
    """The same, and what those use."""
    return used(room).union(*(reached(other) for other in used(room)), set())


def arrows() -> list[tuple[str, str]]:
    """Only what does not follow from other arrows."""
    return [
        (room, other)
        for room in MAY_USE
        for other in sorted(used(room))
        if not any(other in reached(between) for between in used(room) - {other})
    ]


@cache
def level(room: str) -> int:
    """How many rooms lie above a room, one on the other; what nobody uses, but the command, lies over what it uses."""
    users = [other for other in {"cli"} | reached("cli") if room in used(other)]
    if not users and room != "cli":
        return min(map(level, used(room))) - 1
    return 1 + max(map(level, users), default=-1)


def chains() -> list[list[str]]:
    """Each arrow as the things that it goes through: its two rooms, and a lane in every row between them."""
    found = []
    for upper, lower in arrows():
        rows = range(level(upper) + 1, level(lower))
        found.append([upper, *(f"{upper} {lower} {row}" for row in rows), lower])
    return found


def middles(lines: list[list[str]]) -> dict[str, float]:
    """Where the middle of each room and lane lies: under those above it, as near as the others in its row allow."""
    rows: dict[int, list[str]] = {}
    for name in dict.fromkeys([*MAY_USE, *(step for line in lines for step in line)]):
        rows.setdefault(int(name.split()[2]) if " " in name else level(name), []).append(name)
    found: dict[str, float] = {}
    for row in sorted(rows):
        above = {name: [found[line[line.index(name) - 1]] for line in lines if name in line[1:]] for name in rows[row]}
        wanted = {name: sum(xs) / len(xs) if xs else 0.0 for name, xs in above.items()}
        order = sorted(sorted(rows[row], reverse=True), key=lambda name: wanted[name])
        widths = [LANE if " " in name else STEP for name in order]
        left = sum(wanted.values()) / len(order) - sum(widths) / 2
        for name, width in zip(order, widths, strict=True):
            found[name] = left + width / 2
            left += width
    start = min(x - (0 if " " in name else WIDTH / 2) for name, x in found.items()) - 10
    return {name: x - start for name, x in found.items()}


def draw_rooms() -> None:
    """The rooms: nobody may use what lies above."""
    lines = chains()
    where = middles(lines)
    parts = []
    for line in lines:
        bottom = 10 + level(line[0]) * (HEIGHT + GAP) + HEIGHT
        path = f"M{where[line[0]]:.0f},{bottom:.0f}"
        for lane in line[1:-1]:
            path += f" L{where[lane]:.0f},{bottom + GAP:.0f} V{bottom + GAP + HEIGHT:.0f}"
            bottom += HEIGHT + GAP
        parts.append(arrow(f"{path} L{where[line[-1]]:.0f},{bottom + GAP - 2:.0f}"))
    for room in MAY_USE:
        top = 10 + level(room) * (HEIGHT + GAP)
        parts.append(box(where[room] - WIDTH / 2, top, room, HOLDS.get(room, "")))
    width = max(where[room] for room in MAY_USE) + WIDTH / 2 + 10
    height = 20 + (1 + max(map(level, MAY_USE))) * (HEIGHT + GAP) - GAP
    write_picture("rooms", width, height, "The rooms: arrows show what a room may import", parts)


def draw_way() -> None:
    """From file to report."""
    parts, columns = [], 4
    for number, (title, about) in enumerate(WAY):
        row, column = divmod(number, columns)
        x, y = 10 + column * 210, 10 + row * 90
        parts.append(box(x, y, title, about))
        if number + 1 < len(WAY):
            if column + 1 < columns:
                parts.append(arrow(f"M{x + WIDTH},{y + HEIGHT / 2:.0f} L{x + 208},{y + HEIGHT / 2:.0f}"))
            else:  # down to the next row's beginning
                parts.append(arrow(f"M{x + 85},{y + HEIGHT} V{y + HEIGHT + 22} H95 V{y + 88}"))
    write_picture("way", 10 + columns * 210, 3 * 90, "A batch's way, from file to report", parts)


def main() -> None:
    capsule_picture.main()
    draw_rooms()
    draw_way()


if __name__ == "__main__":
    main()
