"""How well the letters of a chart can be read: the contrast of each text to what is drawn below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from labkit.charts.ink import LEAST_CONTRAST, contrast

GROUND = 0.15  # a colour that covers a smaller share of a text's box is a line, not what the text stands on


def drawn_without_letters(figure: Figure) -> np.ndarray:
    """Draw the figure, lay it out, and return its pixels as they are below all letters, rows from the top."""
    canvas = FigureCanvasAgg(figure)
    renderer: Any = canvas.get_renderer()
    renderer.draw_text = lambda *_, **__: None
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def unreadable(texts: list[Text], pixels: np.ndarray) -> list[str]:
    """Return a line for each text that has too little contrast to a colour below it."""
    return [
        f"{text.get_text()!r}: {to_hex(ink)} on {ground} is {contrast(ink, ground):.2f}"
        for text in texts
        if text.get_text().strip()
        for ground in grounds(text, pixels)
        if contrast(ink := over(text, ground), ground) < LEAST_CONTRAST
    ]


def over(text: Text, ground: str) -> str:
    """Return the colour of a text's letters, through which the ground may show."""
    *rgb, alpha = to_rgba(text.get_color())
    alpha *= 1 if text.get_alpha() is None else text.get_alpha()
    below = to_rgba(ground)[:3]
    return to_hex([alpha * one + (1 - alpha) * other for one, other in zip(rgb, below, strict=True)])


def grounds(text: Text, pixels: np.ndarray) -> Iterator[str]:
    """Yield the colours that a text stands on."""
    box = Text.get_window_extent(text)
    rows, columns = pixels.shape[:2]
    top, bottom = (int(np.clip(rows - y, 0, rows)) for y in (box.y1, box.y0))
    left, right = (int(np.clip(x, 0, columns)) for x in (box.x0, box.x1))
    below = pixels[top : bottom + 1, left : right + 1].reshape(-1, 3) @ np.array([2**16, 2**8, 1])
    colors, counts = np.unique(below, return_counts=True)  # a number a colour: rows of three take ten times as long
    yield from (f"#{color:06x}" for color in colors[counts >= GROUND * counts.sum()])
