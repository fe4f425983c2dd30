"""Draw the two diagrams of docs/architecture.md as SVG: python scripts/diagrams.py"""

from __future__ import annotations

from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1c2430; } .small { font-size: 11px; fill: #5b6675; }
  rect { fill: #eef3f8; stroke: #0072b2; rx: 6px; } path { stroke: #5b6675; fill: none; marker-end: url(#tip); }
  #tip path { fill: #5b6675; stroke: none; marker-end: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ee; } .small { fill: #9aa5b4; } rect { fill: #1d2733; stroke: #56b4e9; }
    path { stroke: #9aa5b4; } #tip path { fill: #9aa5b4; }
  }
"""
TIP = '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
TIP += '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
WIDTH, HEIGHT = 170, 46

# Each room: column and row of its box, and what it holds.
ROOMS = {
    "cli": (1.5, 0, "the torchcaps command"),
    "compare": (1.5, 1, "one table, one report"),
    "bench": (0, 2, "speed and memory"),
    "evaluate": (0.9, 2, "what a run is worth"),
    "analysis": (2.1, 2, "what capsules hold"),
    "train": (0.9, 3, "loop, checkpoints, runs"),
    "models": (2.1, 4, "one file per paper"),
    "losses": (1.05, 5, "output to one number"),
    "layers": (2.1, 5, "transforms, decoder"),
    "data": (0, 5, "datasets, checksums"),
    "routing": (2.1, 6, "one file each"),
    "functional": (1.55, 7, "tensors in, tensors out"),
    "kernels": (2.65, 7, "fast forms"),
}
ARROWS = [
    ("cli", "compare"),
    ("cli", "bench"),
    ("compare", "evaluate"),
    ("compare", "analysis"),
    ("evaluate", "train"),
    ("bench", "train"),
    ("analysis", "models"),
    ("train", "models"),
    ("train", "data"),
    ("train", "losses"),
    ("models", "layers"),
    ("layers", "routing"),
    ("routing", "functional"),
    ("routing", "kernels"),
]
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


def box(x: float, y: float, title: str, words: str) -> str:
    middle = x + WIDTH / 2
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<text x="{middle:.0f}" y="{y + 20:.0f}" text-anchor="middle">{title}</text>'
        f'<text class="small" x="{middle:.0f}" y="{y + 36:.0f}" text-anchor="middle">{words}</text>'
    )


def page(width: float, height: float, title: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        f"<title>{title}</title><style>{STYLE}</style>{TIP}\n{body}\n</svg>\n"
    )


def rooms() -> str:
    places = {name: (10 + column * 200, 10 + row * 76) for name, (column, row, _) in ROOMS.items()}
    parts = [box(*places[name], name, words) for name, (_, _, words) in ROOMS.items()]
    for upper, lower in ARROWS:
        (x1, y1), (x2, y2) = places[upper], places[lower]
        start, end = (x1 + WIDTH / 2, y1 + HEIGHT), (x2 + WIDTH / 2, y2)
        parts.append(f'<path d="M{start[0]:.0f},{start[1]:.0f} L{end[0]:.0f},{end[1] - 2:.0f}"/>')
    return page(720, 7 * 76 + HEIGHT + 20, "The rooms: arrows show what a room may import", parts)


def way() -> str:
    parts, columns = [], 4
    for number, (title, words) in enumerate(WAY):
        row, column = divmod(number, columns)
        x, y = 10 + column * 210, 10 + row * 90
        parts.append(box(x, y, title, words))
        if number + 1 < len(WAY):
            if column + 1 < columns:
                parts.append(f'<path d="M{x + WIDTH},{y + HEIGHT / 2:.0f} L{x + 208},{y + HEIGHT / 2:.0f}"/>')
            else:  # down to the next row's beginning
                middle = y + HEIGHT + 22
                parts.append(f'<path d="M{x + 85},{y + HEIGHT} V{middle} H95 V{y + 88}"/>')
    return page(10 + columns * 210, 3 * 90, "A batch's way, from file to report", parts)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "rooms.svg").write_text(rooms(), encoding="utf-8")
    (IMAGES / "way.svg").write_text(way(), encoding="utf-8")
