"""Memory in use, moment by moment: layers by kind, and the phases on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas, ledgers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What an allocation's history tells apart, from the bottom; the base was there before the history began.
LAYERS = {
    "base": ("parameters and states", ledgers.COLORS["parameters"]),
    "optimizer": ("new optimizer states", ledgers.COLORS["optimizer"]),
    "gradients": ("gradients", ledgers.COLORS["gradients"]),
    "activations": ("activations", ledgers.COLORS["activations"]),
    "temporary": ("temporary", ledgers.COLORS["temporary"]),
}
_NAMES = 0.93  # the height, as a share of the axis, above which the phases' names stand
_LETTER = 0.0085  # share of the axis that a letter of a phase's name takes


def memory_layers(ax: Axes, table: pd.DataFrame, scale: float = 1024, names: Mapping[str, str] | None = None) -> None:
    """Stack what is in use by kind, MiB over `scale`, with what is reserved as a line where anything is, and phases.

    `names` replaces names of layers.
    """
    kinds = [kind for kind in LAYERS if table[f"{kind}_mib"].any()]
    labels = [(names or {}).get(kind, LAYERS[kind][0]) for kind in kinds]
    layers, colors = [table[f"{kind}_mib"] / scale for kind in kinds], [LAYERS[kind][1] for kind in kinds]
    ax.stackplot(table["t_ms"], layers, labels=labels, colors=colors, step="post", linewidth=0)
    if table["reserved_mib"].any():
        style = {"color": canvas.INK, "lw": 1.2, "ls": (0, (4, 2)), "drawstyle": "steps-post", "label": "reserved"}
        ax.plot(table["t_ms"], table["reserved_mib"] / scale, **style)
    ax.set_ylim(0, 1.14 * max(table["reserved_mib"].max(), table["allocated_mib"].max()) / scale)
    _phases(ax, table)


def _phases(ax: Axes, table: pd.DataFrame) -> None:
    """Mark where each phase starts, and name it: in full, by its first letter, or not at all where it is short."""
    end = table["t_ms"].iloc[-1]
    ax.set_xlim(0, end)
    starts = table.loc[table["phase"] != table["phase"].shift(), ["t_ms", "phase"]]
    style = {"ha": "center", "va": "center", "fontsize": 8, "color": canvas.QUIET}
    for start, stop, phase in zip(starts["t_ms"], [*starts["t_ms"][1:], end], starts["phase"], strict=True):
        ax.axvline(start, ymax=_NAMES, color=canvas.QUIET, lw=0.6)
        share = (stop - start) / end
        text = phase if share > _LETTER * len(phase) else phase[0].upper()
        if share > _LETTER * len(text):
            ax.text((start + stop) / 2, (_NAMES + 1) / 2, text, transform=ax.get_xaxis_transform(), **style)
