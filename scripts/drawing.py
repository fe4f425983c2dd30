"""Shared code of the documentation's SVG figures, each in a light and a dark version."""

from __future__ import annotations

from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
THEMES = {
    "light": {"text": "#1c2430", "quiet": "#5b6675", "fill": "#eef3f8", "line": "#0072b2", "other": "#d55e00"},
    "dark": {"text": "#e4e8ee", "quiet": "#9aa5b4", "fill": "#1d2733", "line": "#56b4e9", "other": "#e69f00"},
}
STYLE = """
  text {{ font: 15px system-ui, sans-serif; fill: {text}; }} .small {{ font-size: 12px; fill: {quiet}; }}
  .title {{ font-weight: 600; }} rect.box {{ fill: {fill}; stroke: {line}; rx: 6px; }}
  .arrow {{ stroke: {quiet}; fill: none; marker-end: url(#tip); }} #tip path {{ fill: {quiet}; }}
  .rectangle {{ stroke: {line}; }} .triangle {{ stroke: {other}; }} .part {{ fill: none; stroke-width: 2.5; }}
  .rectangle.solid {{ fill: {line}; }} .triangle.solid {{ fill: {other}; }} .dashed {{ stroke-dasharray: 5 3; }}
  text.rectangle {{ fill: {line}; stroke: none; }} text.triangle {{ fill: {other}; stroke: none; }}
  .frame {{ fill: none; stroke: {quiet}; rx: 8px; }}
"""
TIP = '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
TIP += '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
WIDTH, HEIGHT = 170, 46  # of a box


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def box(x: float, y: float, title: str, about: str) -> str:
    middle = x + WIDTH / 2
    frame = f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}"/>'
    return frame + words(middle, y + 20, title) + words(middle, y + 37, about, "small")


def arrow(path: str) -> str:
    return f'<path class="arrow" d="{path}"/>'


def write_picture(name: str, width: float, height: float, title: str, parts: list[str]) -> None:
    """Write a figure in both themes, as NAME-light.svg and NAME-dark.svg."""
    IMAGES.mkdir(exist_ok=True)
    body = "\n".join(parts)
    for theme, colors in THEMES.items():
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
            f"<title>{title}</title><style>{STYLE.format(**colors)}</style>{TIP}\n{body}\n</svg>\n"
        )
        (IMAGES / f"{name}-{theme}.svg").write_text(text, encoding="utf-8")
