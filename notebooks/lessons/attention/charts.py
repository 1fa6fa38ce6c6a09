"""Tables of lab 08 → figures: a row of panels per run, this run first; softmax by tiles; a report's times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import shades
from labkit.provenance import fact, fact_or, where
from labkit.story import units
from lessons.attention.theory import ATTENTION_NAMES, FULL, SKIPPED, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour and marker per implementation, on all charts of the lab.
STYLES = {
    "flash": (canvas.SERIES[0], "D"),
    "sdpa_flash": (canvas.SERIES[1], "o"),
    "sdpa_cudnn": (canvas.SERIES[2], "v"),
    "plain": (canvas.SERIES[3], "s"),
    "tiled": (canvas.SERIES[5], "P"),
    "yours": (canvas.YOURS, "X"),
    "hopper": ("#6A3D9A", "*"),
    "compiled": (canvas.SERIES[4], "^"),
    "by_hand": (canvas.SERIES[6], "p"),
}
_COLORS: dict[str, Any] = {name: {"color": color, "label": None} for name, (color, _) in STYLES.items()}
_LOOKS: dict[str, Any] = {
    name: {"color": color, "marker": marker, "label": ATTENTION_NAMES.get(name)}
    for name, (color, marker) in STYLES.items()
}
_BAD = canvas.PREDICTED
_CROSS: Any = {"marker": "x", "color": canvas.QUIET, "ms": 8, "mew": 2, "ls": ""}
_RING: Any = {"marker": "o", "ms": 12, "mfc": "none", "mec": _BAD, "mew": 1.6, "ls": ""}
_PREDICTED_AT = 16384  # positions
_MOMENTS = {"kept": "kept for backward", "backward": "most in backward"}
_PHASES = ("forward", "backward")
_MOST = 7  # lengths that are named under one of two panels


def memory_chart(*tables: pd.DataFrame, guess: Any = None, moments: Sequence[str] = tuple(_MOMENTS)) -> Figure:
    """MiB kept for backward and at most in backward, by sequence length; thin lines are the formulas.

    `moments` chooses the panels, "kept" and "backward". × stands on the formula of what is at most in backward, where
    the GPU has too little memory; the dashed line is what it has. `guess`: MiB at most in
    backward of plain attention at N = 16 384, a number or a Prediction.
    """
    figure, pairs = _rows(tables, len(moments))
    for table, axes in pairs:
        for ax, moment in zip(axes, moments, strict=True):
            parts.lines(ax, table, "sequence", f"{moment}_mib", "implementation", _LOOKS, ms=5, ls="")
            parts.lines(ax, table, "sequence", f"{moment}_formula_mib", "implementation", _COLORS, lw=1.1)
            if moment == "backward":
                for status, gone in table[table["status"] != "ok"].groupby("status"):
                    ax.plot(gone["sequence"], gone[f"{moment}_formula_mib"], label=status, **_CROSS)
            if (gpu_mib := fact(table, "gpu_mib")) > 0:
                ax.axhline(gpu_mib, color=canvas.THEORY, ls=canvas.DASHES, lw=1.2)
                style: Any = {"va": "bottom", "fontsize": 9, "color": canvas.QUIET}
                style |= {"transform": ax.get_yaxis_transform()}
                ax.text(0.02, 1.1 * gpu_mib, f"the GPU's {units.count(gpu_mib)} MiB", **style)
            ax.plot([], [], color=canvas.QUIET, lw=1.1, label="formula")
            _dress(ax, table, _MOMENTS[moment])
        canvas.logarithmic(axes[0].yaxis)
        axes[0].set_ylabel("MiB (log)")
        if _PREDICTED_AT in set(table["sequence"]):
            parts.guess_mark(axes[-1], _PREDICTED_AT, guess)
    return _closed(figure, [table for table, _ in pairs])


def plain_chart(*tables: pd.DataFrame) -> Figure:
    """Forward in ms by sequence length, d = 64, a panel per run; dashed: a clock that does not wait for the GPU.

    The black line is the least that the GPU needs for plain attention; a ring is a time that it does not allow.
    """
    figure, shown = parts.panel_each(parts.distinct(tables), height=4.1)
    for ax, of_run in shown:
        table = of_run[of_run["head_dim"] == 64]
        for clock, dashes in {"forward": "-", "unsynchronised": canvas.DASHES}.items():
            parts.lines(ax, table, "sequence", f"{clock}_ms", "implementation", _LOOKS, ms=5, lw=1.3, ls=dashes)
            _ring(ax, table[table[f"{clock}_verdict"] == "impossible"], f"{clock}_ms")
        if (least := table[table["implementation"] == "plain"])["forward_least_ms"].notna().any():
            style: Any = {"color": canvas.THEORY, "lw": 1.3, "label": "least time, plain"}
            ax.plot(least["sequence"], least["forward_least_ms"], **style)
        _dress(ax, of_run, "\n".join(["forward, d = 64", *of_run["gpu"].dropna().unique()]))
        ax.plot([], [], color=canvas.QUIET, lw=1.1, ls=canvas.DASHES, label="clock without waiting")
        canvas.logarithmic(ax.yaxis)
        ms = table[["forward_ms", "unsynchronised_ms"]]
        ax.set(ylabel="ms (log)", ylim=(ms.min(axis=None) / 2, 2 * ms.max(axis=None)))
    return _closed(figure, [table for _, table in shown])


def race_chart(*tables: pd.DataFrame) -> Figure:
    """Rate of causal forward + backward by sequence length, a panel per head dimension; dashed: the captured clock.

    All are credited with the same operations, so twice the rate is half the time. ✕ at the bottom: out of memory.
    """
    figure, pairs = _rows(_on_a_gpu(tables))
    for table, axes in pairs:
        rows = table[table["phase"] == "both"]
        scale, unit = (1, "TFLOP/s") if rows["tflops"].max() >= 1 else (1e6, "MFLOP/s")
        by_panel = rows.groupby(["precision", "head_dim"], sort=False)
        for ax, ((precision, head_dim), group) in _fill(axes, list(by_panel)):
            for clock, dashes in {"launched": "-", "captured": canvas.DASHES}.items():
                rates = group[group["clock"] == clock].assign(rate=scale * group["tflops"])
                parts.lines(ax, rates, "sequence", "rate", "implementation", _LOOKS, ms=4, lw=1.4, ls=dashes)
            _out_of_memory(ax, group[group["status"] != "ok"], 0.04)
            if "captured" in set(group["clock"]):
                ax.plot([], [], color=canvas.QUIET, lw=1.4, ls=canvas.DASHES, label="captured clock, warm cache")
            _dress(ax, table, f"d = {head_dim}, {precision}, causal")
        axes[0].set(ylabel=f"{unit}, forward + backward", ylim=(0, None))
    return _closed(figure, [table for table, _ in pairs])


def attention_chart(times: pd.DataFrame) -> Figure:
    """Printed times by sequence length, d = 64, a panel per phase; a ring where a time is impossible.

    The black line is the least that an H100 needs for eager attention: scores go through memory.
    """
    figure, pairs = _rows([times])
    table = times[times["head_dim"] == 64]
    for ax, phase in zip(pairs[0][1], _PHASES, strict=True):
        rows = table[table["phase"] == phase]
        for (problem, name), group in rows.groupby(["problem", "implementation"], sort=False):
            number, first = ("first", True) if problem == "pytorch_attention" else ("second", False)
            kind = "compiled" if name == "compiled" else "eager"
            below = not first and kind == "eager"  # its compiled times lie on it: drawn wide, both are seen
            drawn: Any = {"color": STYLES[name][0], "marker": "o" if first else "s", "ms": 5, "lw": 1.3}
            drawn |= {"ms": 10, "lw": 4, "mfc": "none", "zorder": 1.5} if below else {}
            drawn |= {"ls": "-" if first else canvas.DASHES, "label": f"{kind}, {number} table"}
            ax.plot(group["sequence"], group["ms"], **drawn)
        least = rows[rows["implementation"] == "by_hand"].drop_duplicates("sequence")
        ax.plot(least["sequence"], least["least_ms"], color=canvas.THEORY, lw=1.3, label="least time, eager")
        _ring(ax, rows[rows["verdict"] == "impossible"], "ms")
        _dress(ax, times, f"{phase}, d = 64")
    canvas.logarithmic(pairs[0][1][0].yaxis)
    pairs[0][1][0].set_ylabel("ms (log)")
    return _closed(figure, [times])


def _on_a_gpu(tables: Sequence[pd.DataFrame]) -> Sequence[pd.DataFrame]:
    """Return the tables without those of an interpreter, whose times say nothing of a kernel; all, if there is none."""
    return [table for table in tables if not fact_or(table, "interpreted", False)] or tables


def _rows(tables: Sequence[pd.DataFrame], columns: int = 2) -> tuple[Figure, list[tuple[pd.DataFrame, Any]]]:
    """Return a figure with `columns` panels per table, which share their vertical axis; and each table with its own."""
    tables = parts.distinct(tables)
    figure, grid = canvas.canvas(columns, len(tables), height=1 + 3.1 * len(tables), squeeze=False, sharey="row")
    return figure, list(zip(tables, grid, strict=True))


def _fill(axes: Any, groups: list) -> Any:
    """Return each group with its panel; a run that measured fewer groups leaves the other panels out."""
    for ax in axes[len(groups) :]:
        ax.remove()
    return zip(axes[: len(groups)], groups, strict=True)


def _dress(ax: Axes, table: pd.DataFrame, title: str) -> None:
    """Give a panel its title and its axis of lengths; where they are many, every second one is named."""
    parts.knob_axis(ax, table["sequence"], "positions", most=_MOST, fontsize=8.5)
    ax.set_title(f"{where(table)}: {title}", fontsize=10)
    ax.grid(True)


def _ring(ax: Axes, rows: pd.DataFrame, column: str) -> None:
    if len(rows):
        ax.plot(rows["sequence"], rows[column], label="shorter than the GPU allows", **_RING)


def _out_of_memory(ax: Axes, failed: pd.DataFrame, height: float) -> None:
    for status, rows in failed.groupby("status"):
        at, style = list(rows["sequence"]), _CROSS | {"label": f"plain: {status}"}
        ax.plot(at, [height] * len(at), transform=ax.get_xaxis_transform(), **style)


def _closed(figure: Figure, tables: Sequence[pd.DataFrame]) -> Figure:
    note = "Triton's interpreter ran our kernel here · " if fact_or(tables[0], "interpreted", False) else ""
    scales = "each run has its own scale · " if len(tables) > 1 else ""
    return parts.close(figure, *tables, note=note + scales)


MASKED = canvas.IDLE
BEFORE, KEPT, _ADDED = "#8C8C8C", canvas.COMPUTE, "#8DB7CE"
_LEGEND = {"l before": BEFORE, "kept: × exp(m_old − m_new)": KEPT, "added": _ADDED}


def tiles_chart(steps: Sequence[Step]) -> Figure:
    """The matrix with its tiles numbered as they are visited, and one row's scores, running maximum and running sum.

    The row is the one that is rescaled most often; factors below 1 stand over its bars. × is a skipped tile.
    """
    from matplotlib.ticker import MaxNLocator

    row = _followed(steps)
    visited = [step for step in steps if row in step.rows and step.kind != SKIPPED]
    figure, (matrix, maxima, sums) = parts.panels(3, height=3.9, width_ratios=(1.1, 1, 1))
    _draw_matrix(matrix, steps, row)
    _draw_maxima(maxima, visited, row)
    _draw_sums(sums, visited, row)
    maxima.set_xlim(visited[0].columns[0] - 0.7, visited[-1].columns[-1] + 0.7)
    sums.set_xlim(maxima.get_xlim())
    for axis in (matrix.xaxis, matrix.yaxis, maxima.xaxis, sums.xaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 10]))
    if any(step.kind != FULL for step in steps):
        sums.plot([], [], "x", color=canvas.QUIET, ms=5, label="skipped tile")
        parts.swatches(sums, {"masked score": MASKED})
    parts.swatches(sums, _LEGEND)
    canvas.legend_above(sums, columns=7)
    return canvas.finish(figure, "computed, not measured")


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
