"""What a rank holds, item by item: one colour and one name per item, bars laid end to end, and the measured peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
