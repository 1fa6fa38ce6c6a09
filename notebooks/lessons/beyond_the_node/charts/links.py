"""All-reduces over two nodes as pictures: two lines, and one ring beside two levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLACES = {"inside": "inside a node", "between": "between nodes"}
_BYTES_PER_KIB = 1024


def rate_name(link_mbit: float) -> str:
    """Return how a rate of the link is called on a chart: "100 Mbit/s", or "not shaped"."""
    return f"{int(link_mbit)} Mbit/s" if link_mbit else "not shaped"


def rate_colors(*tables: pd.DataFrame) -> dict[int, str]:
    """Return a colour per rate of the tables' links, the fastest first; the same for all charts of the same rates."""
    rates = sorted({int(rate) for table in tables for rate in table["link_mbit"]}, key=lambda rate: -(rate or 1e9))
    return dict(zip(rates, (canvas.SERIES[6], *canvas.SERIES[:5]) if 0 in rates else canvas.SERIES, strict=False))


def distinct(tables: tuple[Any, ...]) -> list[Any]:
    """Return each run's table once: where the recorded run stands in for a launch, both are the same."""
    first = {fact(one[0] if isinstance(one, tuple) else one, "source"): one for one in reversed(tables)}
    return [one for one in tables if any(one is kept for kept in first.values())]


def lines_chart(*pairs: tuple[pd.DataFrame, pd.DataFrame], guess: Any = None) -> Figure:
    """Time of an all-reduce by size, inside a node and between nodes, with the fitted lines; a panel per run.

    Each pair is `messages` and its `two_lines`. `guess` is a predicted time in ms of 1 MiB at the slowest link.
    """
    runs = distinct(pairs)
    figure, axes = parts.panels(len(runs), height=4.4, sharey=True)
    colors = rate_colors(*(lines for _, lines in runs))
    value = getattr(guess, "value", guess)
    for ax, (table, lines) in zip(axes, runs, strict=True):
        for line in lines.itertuples():
            _line(ax, table, line, colors[line.link_mbit])
        if value is not None:
            ax.plot([1], [value], "D", color=canvas.PREDICTED, label="your prediction", zorder=4)
        canvas.logarithmic(ax.xaxis)
        canvas.logarithmic(ax.yaxis)
        ax.grid(True)
        ax.set(title=f"{where(table)}: all-reduce of two ranks", xlabel="tensor, MiB (log)")
    axes[0].set_ylabel("all-reduce, ms (log)")
    canvas.shared_legend(figure, axes, columns=3)
    return canvas.finish(figure, sources(*(table for table, _ in runs)))


def _line(ax: Axes, table: pd.DataFrame, line: Any, color: str) -> None:
    """Draw a place's measured points with their spread, and its fitted line."""
    own = table[(table["place"] == line.place) & (table["link_mbit"] == line.link_mbit)]
    inside = line.place == "inside"
    rate = "" if inside else f", {rate_name(line.link_mbit)}"
    look: dict[str, Any] = {"color": canvas.INK if inside else color, "marker": "s" if inside else "o"}
    mib = own["kib"] / _BYTES_PER_KIB
    ax.errorbar(
        mib, own["call_ms"], yerr=own["spread_call_ms"], ls="", capsize=3, label=f"{_PLACES[line.place]}{rate}", **look
    )
    sizes = np.geomspace(mib.min(), mib.max(), 50)
    sent_gb = 2 * (line.ranks - 1) / line.ranks * sizes * _BYTES_PER_KIB**2 / 1e9
    ax.plot(sizes, line.alpha_us / 1e3 + 1e3 * sent_gb / line.beta_gb_per_s, color=look["color"], lw=1)
