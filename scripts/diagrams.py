"""Draw the diagrams of docs/architecture.md as SVG: python scripts/diagrams.py

The rooms and their arrows come from the rule that tests/test_imports.py holds, so that no drawing can lag behind it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import capsule_picture
from drawing import HEIGHT, WIDTH, arrow, box, write_picture

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_imports import BOTTOM, MAY_USE

STEP, GAP = WIDTH + 26, 34  # from one box to the next, and between two rows
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


def level(room: str) -> int:
    """How many rooms lie above a room, one on the other; what nobody uses, but the command, lies over what it uses."""
    users = [other for other in {"cli"} | reached("cli") if room in used(other)]
    if not users and room != "cli":
        return min(map(level, used(room))) - 1
    return 1 + max(map(level, users), default=-1)


def places() -> dict[str, tuple[float, float]]:
    """Each room below those that use it, as near under them as the others in its row allow."""
    rows: dict[int, list[str]] = {}
    for room in MAY_USE:
        rows.setdefault(level(room), []).append(room)
    found: dict[str, tuple[float, float]] = {}
    drawn = arrows()
    for row in sorted(rows):
        above = {room: [found[high][0] for high, low in drawn if low == room] for room in rows[row]}
        wanted = {room: sum(places) / len(places) if places else 3 * STEP for room, places in above.items()}
        order = sorted(sorted(rows[row], reverse=True), key=lambda room: wanted[room])
        middle = sum(wanted.values()) / len(order)
        for number, room in enumerate(order):
            found[room] = (middle + (number - (len(order) - 1) / 2) * STEP, 10 + row * (HEIGHT + GAP))
    left = min(x for x, _ in found.values()) - 10
    return {room: (x - left, y) for room, (x, y) in found.items()}


def draw_rooms() -> None:
    """The rooms: nobody may use what lies above."""
    where = places()
    parts = []
    for upper, lower in arrows():
        (x1, y1), (x2, y2) = where[upper], where[lower]
        # Down between the boxes as far as the gap above the other room, and only there across.
        down = f"V{y2 - GAP:.0f} " if y2 - GAP > y1 + HEIGHT else ""
        parts.append(arrow(f"M{x1 + WIDTH / 2:.0f},{y1 + HEIGHT:.0f} {down}L{x2 + WIDTH / 2:.0f},{y2 - 2:.0f}"))
    parts += [box(*where[room], room, HOLDS.get(room, "")) for room in MAY_USE]
    width = max(x for x, _ in where.values()) + WIDTH + 10
    height = max(y for _, y in where.values()) + HEIGHT + 10
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
