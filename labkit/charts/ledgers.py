"""What a rank holds: bars of items laid end to end with the measured peak, and every allocation over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas
from labkit.charts.parts import BAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Paul Tol's muted palette, which colour-blind eyes tell apart. None of these colours means anything else on a chart.
COLORS = {
    "parameters": "#332288",
    "gradients": "#CC6677",
    "optimizer": "#117733",
    "activations": "#88CCEE",
    "gathered": "#AA4499",
    "buffers": "#DDCC77",
    "temporary": "#999933",
    "copies": "#882255",
}
NAMES = {item: item for item in COLORS} | {
    "optimizer": "optimizer states",
    "gathered": "gathered parameters",
    "buffers": "buffers of collectives",
    "copies": "bfloat16 copies of weights",
}


def colors(items: Iterable[str]) -> dict[str, str]:
    """Return the colour per name of an item, for a legend, in the order of `items`."""
    return {NAMES[item]: COLORS[item] for item in items}


def memory_unit(most_mib: float, least_mib: float = 2048) -> tuple[int, str]:
    """Return by what MiB are divided, and the unit: GiB where the largest value exceeds `least_mib`."""
    return (1024, "GiB") if most_mib > least_mib else (1, "MiB")


def held_bars(ax: Axes, places: Sequence[float], sizes: Mapping[str, Any], *, height: float = BAR) -> Any:
    """Draw a bar per place, whose parts are the items of `sizes`, end to end; return where the bars end.

    `sizes`: an item of COLORS → its size at each place, in the axis' unit.
    """
    end: Any = 0.0
    for item, size in sizes.items():
        ax.barh(places, size, left=end, color=COLORS[item], height=height, label=NAMES[item])
        end = end + size
    return end


def peak_marks(ax: Axes, places: Sequence[float], peaks: Any, *, size: float = 34) -> None:
    """Draw a diamond where the allocator saw the peak; nothing where it saw none (NaN everywhere)."""
    if peaks.notna().any():
        ax.scatter(peaks, places, marker="D", s=size, color=canvas.INK, zorder=3, label="measured peak")


# What an allocation's history tells apart, from the bottom; the base was there before the history began.
LAYERS = {
    "base": ("parameters and states", COLORS["parameters"]),
    "optimizer": ("new optimizer states", COLORS["optimizer"]),
    "gradients": ("gradients", COLORS["gradients"]),
    "activations": ("activations", COLORS["activations"]),
    "temporary": ("temporary", COLORS["temporary"]),
}
_NAMES = 0.93  # the height, as a share of the axis, above which the phases' names stand
_FONT_SIZE = 8  # points, of a phase's name


def memory_layers(ax: Axes, table: pd.DataFrame, scale: float = 1024, names: Mapping[str, str] | None = None) -> None:
    """Stack what is in use by kind, MiB over `scale`, with what is reserved as a line where anything is, and phases.

    `names` replaces names of layers.
    """
    kinds = [kind for kind in LAYERS if table[f"{kind}_mib"].any()]
    labels = [(names or {}).get(kind, LAYERS[kind][0]) for kind in kinds]
    layers, colors = [table[f"{kind}_mib"] / scale for kind in kinds], [LAYERS[kind][1] for kind in kinds]
    ax.stackplot(table["t_ms"], layers, labels=labels, colors=colors, step="post", linewidth=0)
    if table["reserved_mib"].any():
        style = {"color": canvas.INK, "lw": 1.2, "ls": canvas.DASHES, "drawstyle": "steps-post", "label": "reserved"}
        ax.plot(table["t_ms"], table["reserved_mib"] / scale, **style)
    ax.set_ylim(0, 1.14 * max(table["reserved_mib"].max(), table["allocated_mib"].max()) / scale)
    _phases(ax, table)


def _phases(ax: Axes, table: pd.DataFrame) -> None:
    """Mark where each phase starts, and name it: in full, by its first letter, or not at all where it is short."""
    end = table["t_ms"].iloc[-1]
    ax.set_xlim(0, end)
    starts = table.loc[table["phase"] != table["phase"].shift(), ["t_ms", "phase"]]
    style = {"ha": "center", "va": "center", "fontsize": _FONT_SIZE, "color": canvas.QUIET}
    points = 72 * ax.get_window_extent().width / ax.figure.dpi  # before the layout, which gives rather more
    for start, stop, phase in zip(starts["t_ms"], [*starts["t_ms"][1:], end], starts["phase"], strict=True):
        ax.axvline(start, ymax=_NAMES, color=canvas.QUIET, lw=0.6)
        room = (stop - start) / end * points
        text = next((text for text in (phase, phase[0].upper()) if _text_width_points(text) < room), None)
        if text:
            ax.text((start + stop) / 2, (_NAMES + 1) / 2, text, transform=ax.get_xaxis_transform(), **style)


def _text_width_points(text: str) -> float:
    """Return the points that a phase's name takes, with a gap to the next one."""
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=_FONT_SIZE).get_extents().width + 2
