"""Plain attention's times on two clocks, and the memory that each implementation needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from labkit.charts import canvas
from labkit.labs.attention.theory import FULL, SKIPPED, Step
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


MOST = 7  # names that fit under one of two panels


def mark_lengths(ax: Axes, sequences: pd.Series) -> None:
    """Mark the lengths on a logarithmic axis; where they are many, every second one, with the longest among them."""
    lengths = sorted(set(sequences))
    named = lengths[:: -math.ceil(len(lengths) / MOST)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(named), minor_locator=NullLocator())
    ax.set_xticks(named, [units.count(length) for length in named], fontsize=8.5)
    ax.set_xlabel("sequence length, tokens")


MASKED = canvas.IDLE
SHADES = LinearSegmentedColormap.from_list("scores", ["#EDF4F9", canvas.COMPUTE])
BEFORE, KEPT, ADDED = "#8C8C8C", canvas.COMPUTE, "#8DB7CE"
LEGEND = {BEFORE: "l before", KEPT: "kept: × exp(m_old − m_new)", ADDED: "added"}
SOURCE = "computed, not measured"


def tiles_chart(steps: Sequence[Step]) -> Figure:
    """The matrix with its tiles numbered as they are visited, and one row's scores, running maximum and running sum.

    The row is the one that is rescaled most often; factors below 1 stand over its bars. × is a skipped tile.
    """
    row = _followed(steps)
    own = [step for step in steps if row in step.rows and step.kind != SKIPPED]
    figure, (matrix, maxima, sums) = canvas.canvas(3, height=3.9, width_ratios=(1.1, 1, 1))
    _draw_matrix(matrix, steps, row)
    _draw_maxima(maxima, own, row)
    _draw_sums(sums, own, row)
    maxima.set_xlim(own[0].columns[0] - 0.7, own[-1].columns[-1] + 0.7)
    sums.set_xlim(maxima.get_xlim())
    for axis in (matrix.xaxis, matrix.yaxis, maxima.xaxis, sums.xaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 10]))
    if any(step.kind != FULL for step in steps):
        sums.plot([], [], "x", color=canvas.QUIET, ms=5, label="skipped tile")
        sums.plot([], [], color=MASKED, lw=6, label="masked score")
    for color, name in LEGEND.items():
        sums.plot([], [], color=color, lw=6, label=name)
    canvas.legend_above(sums, columns=7)
    return canvas.finish(figure, SOURCE)


def _followed(steps: Sequence[Step]) -> int:
    """Give the row that is rescaled most often, the last of several."""
    often: Counter[int] = Counter()
    for step in steps:
        often.update({row: 0 < factor < 1 for row, factor in zip(step.rows, step.factors, strict=True)})
    return max(often, key=lambda row: (often[row], row))


def _draw_matrix(ax: Axes, steps: Sequence[Step], row: int) -> None:
    scores = np.block(
        [
            [np.array(step.scores) for step in steps if step.rows == rows]
            for rows in dict.fromkeys(step.rows for step in steps)
        ]
    )
    ax.set_facecolor(MASKED)
    ax.imshow(np.ma.masked_invalid(scores), cmap=SHADES)
    for number, step in enumerate(steps, start=1):
        corner, skipped = (step.columns[0] - 0.5, step.rows[0] - 0.5), step.kind == SKIPPED
        ax.add_patch(Rectangle(corner, len(step.columns), len(step.rows), fill=False, edgecolor="white", lw=2))
        ax.annotate(
            "×" if skipped else number,
            corner,
            (2.5, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
            fontweight="bold",
            color=canvas.QUIET if skipped else canvas.INK,
        )
    ax.add_patch(Rectangle((-0.5, row - 0.5), scores.shape[1], 1, fill=False, edgecolor=canvas.INK, clip_on=False))
    ax.set(title="Tiles as they are visited", xlabel="key", ylabel="query")


def _draw_maxima(ax: Axes, own: Sequence[Step], row: int) -> None:
    for step in own:
        place, (start, end) = row - step.rows[0], (step.columns[0] - 0.5, step.columns[-1] + 0.5)
        for key, score in zip(step.columns, step.scores[place], strict=True):
            if score == -np.inf:
                ax.axvspan(key - 0.5, key + 0.5, color=MASKED, lw=0)
        ax.plot(step.columns, step.scores[place], "o", color=canvas.COMPUTE, ms=4)
        ax.hlines(step.after[place].maximum, start, end, color=canvas.INK, lw=2)
        ax.axvline(start, color=canvas.HAIRLINE, lw=1, zorder=0)
    ax.set(title=f"Query {row}: running maximum m", xlabel="key", ylabel="score")


def _draw_sums(ax: Axes, own: Sequence[Step], row: int) -> None:
    for step in own:
        place, middle, width = row - step.rows[0], (step.columns[0] + step.columns[-1]) / 2, 0.4 * len(step.columns)
        before, after, factor = step.before[place].total, step.after[place].total, step.factors[place]
        ax.bar(middle - width / 2, before, width=width, color=BEFORE)
        ax.bar(middle + width / 2, factor * before, width=width, color=KEPT)
        ax.bar(middle + width / 2, after - factor * before, bottom=factor * before, width=width, color=ADDED)
        if 0 < factor < 1:
            ax.text(middle, max(before, after), f"× {units.number(factor, 2)}", ha="center", va="bottom", fontsize=8)
    ax.set(title=f"Query {row}: running sum l", xlabel="key", ylabel="sum of exp(score − m)")
