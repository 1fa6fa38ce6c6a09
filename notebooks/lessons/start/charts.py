"""Tables of lab 00 → figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_on
from labkit.charts.parts import bars, beside, close, distinct, panel_each, panels, rows, swatches
from labkit.provenance import fact, sources, where
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS_OF_START_UP = (  # in the order in which a rank goes through them; each keeps its colour in every run
    "the process starts",
    "Python starts",
    "torch is imported",
    "the ranks meet",
    "the first sum",
    "conditions are measured",
    "the lab prepares",
)


def wall_drawing() -> Figure:
    """Draw the wall between the notebook and its workers: a plan goes in, rows come out."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    figure, ax = canvas.canvas(width=9.6, height=3.2)
    ax.axis("off")
    ax.set(xlim=(0, 10), ylim=(0, 4), title="A plan goes in, rows come out")
    for x, y, width, height, color, text in (
        (0.2, 1.0, 2.6, 2.0, "#DCEBF5", "this notebook's process\n\nplans, tables, charts\nno torch, no GPU memory"),
        (6.6, 3.05, 3.2, 0.62, "#FBEBD0", "rank 0 · GPU 0"),
        (6.6, 2.18, 3.2, 0.62, "#FBEBD0", "rank 1 · GPU 1"),
        (6.6, 1.31, 3.2, 0.62, "#FBEBD0", "rank 2 · GPU 2"),
        (6.6, 0.44, 3.2, 0.62, "#FBEBD0", "rank 3 · GPU 3"),
    ):
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.04", fc=color, ec="none"))
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)
    ax.plot([4.7, 4.7], [0.2, 3.8], color="#B5B5B5", lw=7, solid_capstyle="butt")
    ax.text(4.92, 0.2, "the wall", ha="left", va="bottom", fontsize=9.5, style="italic")
    for y, ends, text, color in (
        (2.5, (2.95, 6.45), "plan (JSON)", canvas.MEASURED),
        (1.45, (6.45, 2.95), "rows (JSON lines)", canvas.COMMUNICATE),
    ):
        ax.add_patch(
            FancyArrowPatch((ends[0], y), (ends[1], y), arrowstyle="-|>", mutation_scale=16, lw=2.5, color=color)
        )
        ax.text(3.75, y + 0.16, text, ha="center", fontsize=9.5)
    return canvas.finish(figure, "torchrun's agent starts one worker process per GPU")


def best_chart(*tables: pd.DataFrame) -> Figure:
    """The least time for one gigabyte moved and one teraflop computed, by datasheet, a dot each: left is faster.

    The first table that has rows is drawn: this node's, then the recorded one's.
    """
    table = next(table for table in tables if len(table))
    figure, (ax,) = panels(1, rows=len(table))
    places = rows(ax, table["what"])
    moves = table["what"].str.startswith(("move", "read"))
    for name, color, of_it in (("bytes", canvas.COMMUNICATE, moves), ("operations", canvas.COMPUTE, ~moves)):
        at = [place for place, drawn in zip(places, of_it, strict=True) if drawn]
        ax.scatter(table.loc[of_it, "least_ms"], at, color=color, s=60, label=name, zorder=3)
    for place, row in zip(places, table.itertuples(), strict=True):
        beside(ax, row.least_ms, place, f"{units.number(row.least_ms)} ms at {units.number(row.rate)} {row.unit}")
    ax.set_xlim(table["least_ms"].min() / 2, table["least_ms"].max() * 12)
    canvas.logarithmic(ax.xaxis)
    ax.set(xlabel="least milliseconds (log)", title=f"No measurement may be shorter: {sources(table)}")
    return close(figure, table)


def startup_chart(*tables: pd.DataFrame) -> Figure:
    """Every rank's start-up as a timeline, a panel per run, rank 0 on top: what passes before anything is measured."""
    tables = distinct(tables)
    heights = [table["rank"].nunique() for table in tables]
    figure, grid = canvas.canvas(
        1, len(tables), height=1.2 * len(tables) + 0.4 * sum(heights), squeeze=False, sharex=True, height_ratios=heights
    )
    named = {part: None for table in tables for part in table["part"]}
    if set(named) <= set(_PARTS_OF_START_UP):  # early recordings had other names
        named = dict.fromkeys(_PARTS_OF_START_UP)
    colors = dict(zip(named, canvas.SERIES, strict=False))
    for ax, table in zip(grid[:, 0], tables, strict=True):
        ranks = sorted(table["rank"].unique())
        rows(ax, [f"rank {rank}" for rank in ranks])
        for part in table["part"].unique():
            by_rank = table[table["part"] == part].set_index("rank").reindex(ranks)
            bars(ax, by_rank["seconds"], start=by_rank["start_s"], color=colors[part])
        ax.set_title(f"{where(table)}: start-up, rank by rank")
    grid[-1, 0].set_xlabel("seconds since the launch")
    drawn = {part for table in tables for part in table["part"]}
    swatches(grid[0, 0], {part: color for part, color in colors.items() if part in drawn})
    return close(figure, *tables, columns=4)


def sums_chart(*tables: pd.DataFrame) -> Figure:
    """Each sum over all ranks, in order, a panel per run on one scale, with the median of all but the first."""
    figure, shown = panel_each(distinct(tables), height=3.4, sharey=True)
    for ax, table in shown:
        ms = 1e3 * table["seconds"]
        ax.plot(table["iteration"] + 1, ms, "o", color=canvas.COMMUNICATE, ms=6)
        ax.axhline(ms.iloc[1:].median(), color=canvas.QUIET, ls="--", label="median of the later sums")
        ax.annotate("the first sum", (1, ms.iloc[0]), (-3, 7), textcoords="offset points")
        ax.margins(y=0.25)
        canvas.logarithmic(ax.yaxis)
        ax.set(xticks=[1, *range(5, len(table) + 1, 5)], xlabel="which sum")
        ax.set_title(f"{where(table)}: {fact(table, 'ranks')} ranks")
        ax.grid(axis="y")
    shown[0][0].set_ylabel("milliseconds (log)")
    return close(figure, *tables)


_ROWS, _PARTS = 3, 3  # ranks of the drawing, and parts of each rank's tensor
_SENT = {  # name → what each rank holds before and after, part by part: the ranks whose numbers are in it
    "broadcast: rank 0's tensor goes to all": ([["a", "a", "a"], ["", "", ""], ["", "", ""]], [["a", "a", "a"]] * 3),
    "all-gather: all get every part": ([["a", "", ""], ["", "b", ""], ["", "", "c"]], [["a", "b", "c"]] * 3),
    "reduce-scatter: each gets a part of the sum": (
        [["a"] * 3, ["b"] * 3, ["c"] * 3],
        [["abc", "", ""], ["", "abc", ""], ["", "", "abc"]],
    ),
    "all-reduce: all get the whole sum": ([["a"] * 3, ["b"] * 3, ["c"] * 3], [["abc"] * 3] * 3),
}


def collectives_drawing() -> Figure:
    """Draw four collectives of three ranks, before and after: a row is a rank, a square a part of its tensor."""
    from matplotlib.patches import FancyArrowPatch

    figure, axes = canvas.canvas(2, 2, width=9.6, height=4.6)
    for ax, (name, (before, after)) in zip(axes.flat, _SENT.items(), strict=True):
        ax.axis("off")
        ax.set(xlim=(-1.5, 8), ylim=(_ROWS, -0.2), title=name, aspect="equal")
        for left, held in ((0, before), (_PARTS + 2, after)):
            for rank, parts in enumerate(held):
                for part, ranks in enumerate(parts):
                    _square(ax, left + part, rank, ranks)
        for rank in range(_ROWS):
            ax.text(-0.2, rank + 0.5, f"rank {rank}", ha="right", va="center", fontsize=8.5)
        arrow = FancyArrowPatch((_PARTS + 0.3, 1.5), (_PARTS + 1.7, 1.5), arrowstyle="-|>", mutation_scale=14, lw=2)
        arrow.set_color(canvas.COMMUNICATE)
        ax.add_patch(arrow)
    colors = dict(zip(("from rank 0", "from rank 1", "from rank 2"), canvas.SERIES, strict=False))
    swatches(axes[0, 0], colors | {"sum of all three": canvas.QUIET})
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, "drawing; a hollow square holds nothing yet")


def _square(ax, x: float, rank: int, ranks: str) -> None:
    """Draw one part of a rank's tensor; `ranks` has a letter for each rank whose numbers are in it."""
    from matplotlib.patches import Rectangle

    color = {"": "none", "abc": canvas.QUIET}.get(ranks) or canvas.SERIES["abc".index(ranks)]
    ax.add_patch(Rectangle((x + 0.06, rank + 0.06), 0.88, 0.88, fc=color, ec="#B5B5B5", lw=1))
    if len(ranks) > 1:
        ax.text(x + 0.5, rank + 0.52, "Σ", ha="center", va="center", color=ink_on(color), fontsize=11)
