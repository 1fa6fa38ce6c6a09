"""Ink for letters: black or white on a colour, a curve's hue on a light ground; the contrast of two colours; shades."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.typing import ColorType

BLACK, WHITE = "#000000", "#ffffff"
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3, for text of this size
LIGHT = "#f2f2f2"  # the darkest ground of a panel


def ink_on(color: ColorType) -> str:
    """Return black or white, whichever can be read better on a colour: always at least 4.5 to 1."""
    return BLACK if contrast(color, BLACK) > contrast(color, WHITE) else WHITE


def ink_like(color: ColorType) -> str:
    """Return the colour, as much darker as letters on a light ground need: a name keeps the hue of what it names."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(color)
    shades = (to_hex((red * light / 50, green * light / 50, blue * light / 50)) for light in range(50, -1, -1))
    return next(shade for shade in shades if contrast(shade, LIGHT) >= LEAST_CONTRAST)


def contrast(color: ColorType, other: ColorType) -> float:
    """Return the contrast of two opaque colours, from 1 to 21, as WCAG 2.2 defines it."""
    light, dark = sorted((_luminance(color), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: ColorType) -> float:
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@functools.cache
def shades() -> LinearSegmentedColormap:
    """Return the colours from nearly white, for 0, to the full blue of computing, for 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", ["#EDF4F9", "#0072B2"])


def shade(level: float) -> str:
    """Return the shade of a level from 0 to 1, as a hexadecimal colour."""
    from matplotlib.colors import to_hex

    return to_hex(shades()(level))
