"""Draw the diagrams of docs/architecture.md as SVG: python scripts/diagrams.py

The packages and arrows come from the rule in tests/test_imports.py, so the diagram is always current.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import capsule_picture
from drawing import HEIGHT, WIDTH, arrow, box, write_picture

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_imports import BOTTOM, MAY_USE

STEP, GAP, LANE = WIDTH + 26, 34, 30  # between boxes, between rows, width of a lane for a passing arrow
# What each package contains, short enough for its box.
HOLDS = {
    "cli": "the torchcaps command",
    "prediction": "image files to classes",
    "export": "ONNX, torch.export",
    "sklearn": "CapsuleClassifier",
    "demo": "HTTP service, page",
    "reproduce": "the papers' tables",
    "compare": "one table, one report",
    "bench": "speed and memory",
    "doctor": "checks the installation",
    "evaluate": "tests of trained runs",
    "analysis": "inspects capsules",
    "attacks": "one file per attack",
    "pretrained": "weights with cards",
    "train": "loop, checkpoints, runs",
    "testing": "checks for a routing",
    "models": "one file per paper",
    "losses": "margin, spread, ...",
    "layers": "transforms, decoder",
    "data": "datasets, checksums",
    "plugins": "loads your own file",
    "routing": "one file per routing",
    "functional": "tensors in, tensors out",
    "kernels": "fused kernels",
}
WAY = [
    ("file", "verified by checksum"),
    ("ImageSet", "bytes in memory"),
    ("sampler", "from (seed, epoch)"),
    ("augmentation", "from (seed, step, rank)"),
    ("model", "pixels in [0, 1] to Output"),
    ("objective", "loss + reconstruction"),
    ("optimizer step", "if all is finite"),
    ("checkpoint", "one file, atomic"),
    ("best weights", "by validation set"),
    ("result.json", "test set, provenance"),
    ("report", "table and figures"),
]


def used(package: str) -> set[str]:
    """Packages that a package may import directly, without the BOTTOM modules."""
    return {other for other in MAY_USE[package] if other in MAY_USE and other not in BOTTOM}


@cache  # otherwise computed once for every path to a package
def reached(package: str) -> set[str]:
    """Packages that a package may import, directly or indirectly."""
    return used(package).union(*(reached(other) for other in used(package)), set())


def arrows() -> list[tuple[str, str]]:
    """Imports that do not follow from other arrows."""
    return [
        (package, other)
        for package in MAY_USE
        for other in sorted(used(package))
        if not any(other in reached(between) for between in used(package) - {other})
    ]


@cache
def level(package: str) -> int:
    """Row of a package: one below the lowest package that imports it, or above those it imports if none does."""
    users = [other for other in {"cli"} | reached("cli") if package in used(other)]
    if not users and package != "cli":
        return min(map(level, used(package))) - 1
    return 1 + max(map(level, users), default=-1)


def chains() -> list[list[str]]:
    """Each arrow as a list of nodes: its two packages, and a lane in every row between them."""
    found = []
    for upper, lower in arrows():
        rows = range(level(upper) + 1, level(lower))
        found.append([upper, *(f"{upper} {lower} {row}" for row in rows), lower])
    return found


def middles(lines: list[list[str]]) -> dict[str, float]:
    """Center x of each package and lane: below the nodes above it, as close as its row allows."""
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


def draw_packages() -> None:
    """Draw the packages; imports point downward."""
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
    for package in MAY_USE:
        top = 10 + level(package) * (HEIGHT + GAP)
        parts.append(box(where[package] - WIDTH / 2, top, package, HOLDS.get(package, "")))
    width = max(where[package] for package in MAY_USE) + WIDTH / 2 + 10
    height = 20 + (1 + max(map(level, MAY_USE))) * (HEIGHT + GAP) - GAP
    write_picture("packages", width, height, "The packages: arrows show what a package may import", parts)


def draw_way() -> None:
    """Draw the path of a training batch."""
    parts, columns = [], 4
    for number, (title, about) in enumerate(WAY):
        row, column = divmod(number, columns)
        x, y = 10 + column * 210, 10 + row * 90
        parts.append(box(x, y, title, about))
        if number + 1 < len(WAY):
            if column + 1 < columns:
                parts.append(arrow(f"M{x + WIDTH},{y + HEIGHT / 2:.0f} L{x + 208},{y + HEIGHT / 2:.0f}"))
            else:  # down to the start of the next row
                parts.append(arrow(f"M{x + 85},{y + HEIGHT} V{y + HEIGHT + 22} H95 V{y + 88}"))
    write_picture("way", 10 + columns * 210, 3 * 90, "A training batch, from the dataset file to the report", parts)


def main() -> None:
    capsule_picture.main()
    draw_packages()
    draw_way()


if __name__ == "__main__":
    main()
