"""Plain attention's times on two clocks, and the memory that each implementation needs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.attention.charts.lengths import mark_lengths
from labkit.story import units

IMPLEMENTATIONS = {
    "by_hand": (canvas.SERIES[0], "o", "softmax by hand"),
    "plain": (canvas.SERIES[2], "s", "torch's softmax"),
    "compiled": (canvas.SERIES[1], "^", "compiled"),
    "flash": (canvas.SERIES[3], "D", "flash"),
}
BAD = canvas.PREDICTED
DASHES = (0, (4, 2))
PREDICTED_AT = 16384  # tokens
PANELS = {"kept": "Kept for backward", "backward": "Peak in backward"}


def plain_chart(table: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Forward and backward by sequence length at one head dimension; dashes are a clock that waits for nobody.

    The black line is the least that the GPU needs for plain attention; a ring is a time that it does not allow. Both
    axes are logarithmic.
    """
    figure, axes = canvas.canvas(2, height=4.3, sharey=True)
    table = table[table["head_dim"] == head_dim]
    for ax, phase in zip(axes, ("forward", "backward"), strict=True):
        for name, own in table.groupby("implementation", sort=False):
            color, marker, label = IMPLEMENTATIONS[name]
            ax.plot(own["sequence"], own[f"{phase}_ms"], color=color, marker=marker, ms=5, lw=1.3, label=label)
            clocks = [phase, "unsynchronised"] if phase == "forward" else [phase]
            for clock in clocks:
                wrong = own[own[f"{clock}_verdict"] == "impossible"]
                ax.plot(wrong["sequence"], wrong[f"{clock}_ms"], "o", ms=12, mfc="none", mec=BAD, mew=1.6)
            if phase == "forward":
                ax.plot(own["sequence"], own["unsynchronised_ms"], color=color, marker=marker, ms=4, lw=1.1, ls=DASHES)
        least = table[table["implementation"] == "plain"]
        if least[f"{phase}_least_ms"].notna().any():
            ax.plot(least["sequence"], least[f"{phase}_least_ms"], color=canvas.THEORY, lw=1.3, label="least, plain")
        canvas.logarithmic(ax.yaxis)
        mark_lengths(ax, table["sequence"])
        ax.set_title(f"{phase.capitalize()}, head dimension {head_dim}")
        ax.grid(True)
    fastest = table[["forward_ms", "backward_ms", "unsynchronised_ms"]].min(axis=None)
    axes[0].set_ylim(bottom=fastest / 2)  # the least of short sequences lies far below
    axes[0].set_ylabel("ms")
    axes[0].plot([], [], color=canvas.QUIET, lw=1.1, ls=DASHES, label="not waited for")
    if table.filter(like="verdict").eq("impossible").any(axis=None):
        axes[0].plot([], [], "o", ms=9, mfc="none", mec=BAD, mew=1.6, label="impossible")
    canvas.legend_above(axes[0], columns=6)
    return canvas.finish(figure, table.attrs["source"])


def memory_chart(table: pd.DataFrame, head_dim: int = 64, guess=None) -> Figure:
    """MiB kept for backward and, on a GPU, at most in backward, by sequence length; thin lines are the formulas.

    × stands on the formula where the GPU ran out of memory, and the dashed line is what it has. Both axes are
    logarithmic: slope 2 is quadratic, slope 1 linear. `guess`: MiB at most in backward of plain attention at
    N = 16 384, a number or a Prediction.
    """
    table = table[table["head_dim"] == head_dim]
    panels = [moment for moment in PANELS if table[f"{moment}_mib"].notna().any()]
    figure, axes = canvas.canvas(len(panels), height=4.4, squeeze=False, sharey=True)
    for ax, moment in zip(axes[0], panels, strict=True):
        for name, own in table.groupby("implementation", sort=False):
            color, marker, label = IMPLEMENTATIONS[name]
            ax.plot(own["sequence"], own[f"{moment}_mib"], color=color, marker=marker, ms=5, ls="none", label=label)
            ax.plot(own["sequence"], own[f"{moment}_formula_mib"], color=color, lw=1.1)
            gone = own[own["status"] != "ok"]
            ax.plot(gone["sequence"], gone[f"{moment}_formula_mib"], "x", color=BAD, ms=8, mew=2)
        if table.attrs["gpu_mib"] > 0:
            ax.axhline(table.attrs["gpu_mib"], color=canvas.THEORY, ls=DASHES, lw=1.2)
            text = f"GPU memory, {units.size(table.attrs['gpu_mib'] * units.MIB)}"
            ax.annotate(
                text,
                (0.02, table.attrs["gpu_mib"]),
                xycoords=ax.get_yaxis_transform(),
                va="bottom",
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=9,
                color=canvas.QUIET,
            )
        canvas.logarithmic(ax.yaxis)
        mark_lengths(ax, table["sequence"])
        ax.set_title(PANELS[moment])
        ax.grid(True)
    axes[0, 0].set_ylabel("MiB")
    if (value := getattr(guess, "value", guess)) is not None:
        axes[0, -1].plot(PREDICTED_AT, value, "D", color=canvas.PREDICTED, zorder=4)
        axes[0, 0].plot([], [], "D", color=canvas.PREDICTED, label="your prediction")
    axes[0, 0].plot([], [], color=canvas.QUIET, lw=1.1, label="formula")
    if (table["status"] != "ok").any():
        axes[0, 0].plot([], [], "x", color=BAD, ms=8, mew=2, label="out of memory")
    canvas.legend_above(axes[0, 0], columns=6)
    return canvas.finish(figure, table.attrs["source"])
