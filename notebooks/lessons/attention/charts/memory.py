"""The memory that each implementation needs, and softmax by tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import shades
from labkit.charts.parts import panels, swatches
from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import ATTENTION_NAMES
from lessons.attention.charts.speed import BAD, DASHES, STYLES, mark_lengths
from lessons.attention.theory import FULL, SKIPPED, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PREDICTED_AT = 16384  # tokens
_PANELS = {"kept": "Kept for backward", "backward": "Peak in backward"}


def memory_chart(table: pd.DataFrame, head_dim: int = 64, guess=None) -> Figure:
    """MiB kept for backward and, on a GPU, at most in backward, by sequence length; thin lines are the formulas.

    × stands on the formula where the GPU ran out of memory, and the dashed line is what it has. Both axes are
    logarithmic: slope 2 is quadratic, slope 1 linear. `guess`: MiB at most in backward of plain attention at
    N = 16 384, a number or a Prediction.
    """
    table = table[table["head_dim"] == head_dim]
    moments = [moment for moment in _PANELS if table[f"{moment}_mib"].notna().any()]
    figure, axes = panels(len(moments), height=4.4, sharey=True)
    for ax, moment in zip(axes, moments, strict=True):
        for name, group in table.groupby("implementation", sort=False):
            (color, marker), label = STYLES[name], ATTENTION_NAMES[name]
            ax.plot(group["sequence"], group[f"{moment}_mib"], color=color, marker=marker, ms=5, ls="none", label=label)
            ax.plot(group["sequence"], group[f"{moment}_formula_mib"], color=color, lw=1.1)
            gone = group[group["status"] != "ok"]
            ax.plot(gone["sequence"], gone[f"{moment}_formula_mib"], "x", color=BAD, ms=8, mew=2)
        if fact(table, "gpu_mib") > 0:
            ax.axhline(fact(table, "gpu_mib"), color=canvas.THEORY, ls=DASHES, lw=1.2)
            text = f"GPU memory, {units.size(fact(table, 'gpu_mib') * units.MIB)}"
            ax.annotate(
                text,
                (0.02, fact(table, "gpu_mib")),
                xycoords=ax.get_yaxis_transform(),
                va="bottom",
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=9,
                color=canvas.QUIET,
            )
        canvas.logarithmic(ax.yaxis)
        mark_lengths(ax, table["sequence"])
        ax.set_title(_PANELS[moment])
        ax.grid(True)
    axes[0].set_ylabel("MiB")
    if (value := getattr(guess, "value", guess)) is not None:
        axes[-1].plot(_PREDICTED_AT, value, "D", color=canvas.PREDICTED, zorder=4)
        axes[0].plot([], [], "D", color=canvas.PREDICTED, label="your prediction")
    axes[0].plot([], [], color=canvas.QUIET, lw=1.1, label="formula")
    if (table["status"] != "ok").any():
        axes[0].plot([], [], "x", color=BAD, ms=8, mew=2, label="out of memory")
    canvas.legend_above(axes[0], columns=6)
    return canvas.finish(figure, fact(table, "source"))


MASKED = canvas.IDLE
BEFORE, KEPT, _ADDED = "#8C8C8C", canvas.COMPUTE, "#8DB7CE"
_LEGEND = {"l before": BEFORE, "kept: × exp(m_old − m_new)": KEPT, "added": _ADDED}
_SOURCE = "computed, not measured"


def tiles_chart(steps: Sequence[Step]) -> Figure:
    """The matrix with its tiles numbered as they are visited, and one row's scores, running maximum and running sum.

    The row is the one that is rescaled most often; factors below 1 stand over its bars. × is a skipped tile.
    """
    from matplotlib.ticker import MaxNLocator

    row = _followed(steps)
    visited = [step for step in steps if row in step.rows and step.kind != SKIPPED]
    figure, (matrix, maxima, sums) = panels(3, height=3.9, width_ratios=(1.1, 1, 1))
    _draw_matrix(matrix, steps, row)
    _draw_maxima(maxima, visited, row)
    _draw_sums(sums, visited, row)
    maxima.set_xlim(visited[0].columns[0] - 0.7, visited[-1].columns[-1] + 0.7)
    sums.set_xlim(maxima.get_xlim())
    for axis in (matrix.xaxis, matrix.yaxis, maxima.xaxis, sums.xaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 10]))
    if any(step.kind != FULL for step in steps):
        sums.plot([], [], "x", color=canvas.QUIET, ms=5, label="skipped tile")
        swatches(sums, {"masked score": MASKED})
    swatches(sums, _LEGEND)
    canvas.legend_above(sums, columns=7)
    return canvas.finish(figure, _SOURCE)


def _followed(steps: Sequence[Step]) -> int:
    """Return the row that is rescaled most often, the last of several."""
    rescalings: Counter[int] = Counter()
    for step in steps:
        rescalings.update({row: 0 < factor < 1 for row, factor in zip(step.rows, step.factors, strict=True)})
    return max(rescalings, key=lambda row: (rescalings[row], row))


def _draw_matrix(ax: Axes, steps: Sequence[Step], row: int) -> None:
    from matplotlib.patches import Rectangle

    scores = np.block(
        [
            [np.array(step.scores) for step in steps if step.rows == rows]
            for rows in dict.fromkeys(step.rows for step in steps)
        ]
    )
    ax.set_facecolor(MASKED)
    ax.imshow(np.ma.masked_invalid(scores), cmap=shades())
    for number, step in enumerate(steps, start=1):
        corner, skipped = (step.columns[0] - 0.5, step.rows[0] - 0.5), step.kind == SKIPPED
        ax.add_patch(Rectangle(corner, len(step.columns), len(step.rows), fill=False, edgecolor="white", lw=2))
        ax.annotate(
            "×" if skipped else str(number),
            corner,
            (2.5, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
            fontweight="bold",
            color=canvas.INK,
            bbox=None if skipped else {"facecolor": "white", "edgecolor": "none", "pad": 0.8},  # cells have any shade
        )
    ax.add_patch(Rectangle((-0.5, row - 0.5), scores.shape[1], 1, fill=False, edgecolor=canvas.INK, clip_on=False))
    ax.set(title="Tiles as they are visited", xlabel="key", ylabel="query")


def _draw_maxima(ax: Axes, visited: Sequence[Step], row: int) -> None:
    for step in visited:
        place, (start, end) = row - step.rows[0], (step.columns[0] - 0.5, step.columns[-1] + 0.5)
        for key, score in zip(step.columns, step.scores[place], strict=True):
            if score == -np.inf:
                ax.axvspan(key - 0.5, key + 0.5, color=MASKED, lw=0)
        ax.plot(step.columns, step.scores[place], "o", color=canvas.COMPUTE, ms=4)
        ax.hlines(step.after[place].maximum, start, end, color=canvas.INK, lw=2)
        ax.axvline(start, color=canvas.HAIRLINE, lw=1, zorder=0)
    ax.set(title=f"Query {row}: running maximum m", xlabel="key", ylabel="score")


def _draw_sums(ax: Axes, visited: Sequence[Step], row: int) -> None:
    for step in visited:
        place, middle, width = row - step.rows[0], (step.columns[0] + step.columns[-1]) / 2, 0.4 * len(step.columns)
        before, after, factor = step.before[place].total, step.after[place].total, step.factors[place]
        ax.bar(middle - width / 2, before, width=width, color=BEFORE)
        ax.bar(middle + width / 2, factor * before, width=width, color=KEPT)
        ax.bar(middle + width / 2, after - factor * before, bottom=factor * before, width=width, color=_ADDED)
        if 0 < factor < 1:
            ax.text(middle, max(before, after), f"× {units.number(factor, 2)}", ha="center", va="bottom", fontsize=8)
    ax.set(title=f"Query {row}: running sum l", xlabel="key", ylabel="sum of exp(score − m)")
