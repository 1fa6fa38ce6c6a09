"""Drawings that a browser makes at once, for explorers: bars, lines and words as SVG, in the page's own text colour."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

WIDTH = 920  # pixels of a drawing
TEXT = "var(--jp-ui-font-color1, #222222)"  # JupyterLab's own, light or dark; elsewhere ink
PAPER = "var(--jp-layout-color0, #ffffff)"


def bar(x: float, y: float, width: float, height: float, color: str, **attributes: object) -> str:
    """Return a rectangle; attributes such as `stroke_width` are SVG's, with underscores."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"{_more(attributes)}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, color: str = TEXT, **attributes: object) -> str:
    """Return a straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}"{_more(attributes)}/>'


def word(x: float, y: float, text: object, color: str = TEXT, **attributes: object) -> str:
    """Return a text that begins at (x, y), or is centred there with `text_anchor="middle"`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{_more(attributes)}>{escape(str(text))}</text>'


def page(parts: Iterable[str], height: float, *, label: str, font_size: int = 12) -> str:
    """Return the whole drawing; `label` says in words what it shows, for those who do not see it."""
    style = f'font-size="{font_size}" font-family="sans-serif" fill="{TEXT}" role="img" aria-label="{escape(label)}"'
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" width="100%" {style}>{"".join(parts)}</svg>'


def legend(colors: dict[str, str]) -> str:
    """Return the names with a square of their colour, as HTML."""
    squares = (f'<span style="color:{color}">■</span> {escape(name)}' for name, color in colors.items())
    return f'<div style="color:{TEXT}">{" &nbsp; ".join(squares)}</div>'


def _more(attributes: dict[str, object]) -> str:
    return "".join(f' {name.replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items())
