"""The tiles in their order, and what one row's maximum and sum do as they pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from labkit.charts import canvas
from labkit.labs.attention.theory.tiles import FULL, SKIPPED, Step
from labkit.story import units

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
