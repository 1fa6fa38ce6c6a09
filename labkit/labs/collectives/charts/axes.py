"""What the charts of lab 09 share: the axis of message sizes, and each collective's and backend's look."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.charts import canvas
from labkit.labs.collectives.theory.volume import COLLECTIVES
from labkit.story import units

# The reader's prediction keeps its colour to itself.
COLORS = dict(zip(COLLECTIVES, (color for color in canvas.SERIES if color != canvas.PREDICTED), strict=False))
BACKENDS = {"nccl": "NCCL", "gloo": "gloo"}
MOST = 6  # names that fit under one of two panels
DASHES = (0, (4, 2))


def factor_bars(values: pd.Series, share: pd.Series) -> list[pd.Series]:
    """Give how far bars reach down and up that are a factor 1 + share each way: alike on a logarithmic axis."""
    return [values - values / (1 + share), values * share]


def named(size_bytes: float) -> str:
    """Give a message's size as short as it is exact: 4 KiB, not 4.00 KiB."""
    number, unit = units.size(size_bytes).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def mark_sizes(ax: Axes, sizes: Iterable[float], most: int = MOST) -> None:
    """Mark the sizes on a logarithmic axis; where they are many, every second or third one, the largest among them."""
    places = sorted(set(sizes))
    shown = places[:: -math.ceil(len(places) / most)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    ax.set_xticks(shown, [named(size) for size in shown], fontsize=8.5)


def mark_regions(ax: Axes, knee_bytes: float) -> None:
    """Shade where latency takes longer than transfer, up to the knee; name both sides over the panel."""
    low, high = ax.get_xlim()
    if math.isfinite(knee_bytes) and knee_bytes > low:
        ax.axvspan(low, min(knee_bytes, high), color=canvas.IDLE, alpha=0.3, lw=0, zorder=0)
        if knee_bytes < high:
            ax.axvline(knee_bytes, color=canvas.QUIET, ls=":", lw=1.3)
    ax.set_xlim(low, high)
    for place, side, name in ((0.02, "left", "← latency"), (0.98, "right", "bandwidth →")):
        ax.text(place, 0.98, name, ha=side, va="top", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)
