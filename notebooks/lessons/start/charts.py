"""Tables of lab 00 → figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_on
from labkit.charts.parts import bars, beside, panels, rows, swatches
from labkit.provenance import fact, sources
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
_WAYS = {"torchrun": "bare torchrun, 1 point", "launch": "launch(), 1 point", "sweep": "launch(), a sweep"}


def wall_drawing() -> Figure:
    """Draw the wall that a run crosses: a plan goes in, rows come out, nothing else."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    figure, ax = canvas.canvas(width=9.6, height=3.2)
    ax.axis("off")
    ax.set(xlim=(0, 10), ylim=(0, 4), title="A run crosses a wall; two things cross it")
    for x, y, width, height, color, text in (
        (0.2, 1.0, 2.6, 2.0, "#DCEBF5", "this notebook's kernel\n\nplans, tables, charts\nno torch, no GPU memory"),
        (6.6, 3.05, 3.2, 0.62, "#FBEBD0", "rank 0 · GPU 0"),
        (6.6, 2.18, 3.2, 0.62, "#FBEBD0", "rank 1 · GPU 1"),
        (6.6, 1.31, 3.2, 0.62, "#FBEBD0", "rank 2 · GPU 2"),
        (6.6, 0.44, 3.2, 0.62, "#FBEBD0", "rank 3 · GPU 3"),
    ):
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.04", fc=color, ec="none"))
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)
    ax.plot([4.7, 4.7], [0.2, 3.8], color="#B5B5B5", lw=7, solid_capstyle="butt")
    for y, ends, text, color in (
        (2.5, (2.95, 6.45), "plan (JSON)", canvas.MEASURED),
        (1.45, (6.45, 2.95), "rows (JSON lines)", canvas.COMMUNICATE),
    ):
        ax.add_patch(
            FancyArrowPatch((ends[0], y), (ends[1], y), arrowstyle="-|>", mutation_scale=16, lw=2.5, color=color)
        )
        ax.text(3.75, y + 0.16, text, ha="center", fontsize=9.5)
    return canvas.finish(figure, "torchrun's agent starts one worker process per GPU")


def best_chart(table: pd.DataFrame) -> Figure:
    """The least time for one gigabyte moved and one teraflop computed, by datasheet, a dot each: left is faster."""
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
    ax.set(xlabel="least milliseconds (log)", title="No measurement on this GPU may be shorter than this")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))


def startup_chart(table: pd.DataFrame) -> Figure:
    """Every rank's start-up as a timeline, rank 0 on top: what a launch costs before anything is measured."""
    ranks = sorted(table["rank"].unique())
    figure, (ax,) = panels(1, rows=len(ranks), row_height=0.38)
    rows(ax, [str(rank) for rank in ranks])
    parts = list(table["part"].unique())
    named = _PARTS_OF_START_UP if set(parts) <= set(_PARTS_OF_START_UP) else parts  # early recordings had other names
    colors = dict(zip(named, canvas.SERIES, strict=False))
    for part in parts:
        by_rank = table[table["part"] == part].set_index("rank").reindex(ranks)
        bars(ax, by_rank["seconds"], start=by_rank["start_s"], color=colors[part], label=str(part))
    ax.set(ylabel="rank", xlabel="seconds since the launch", title="Start-up, rank by rank")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))


def sums_chart(table: pd.DataFrame) -> Figure:
    """Each sum over all ranks, in order: the first one pays for the connections."""
    figure, (ax,) = panels(1, height=3.2)
    ax.plot(table["iteration"] + 1, 1e3 * table["seconds"], "o", color=canvas.COMMUNICATE, ms=6)
    canvas.logarithmic(ax.yaxis)
    ax.set(
        xticks=[1, *range(5, len(table) + 1, 5)],
        xlabel="which sum (1 is the first)",
        ylabel="milliseconds (log)",
        title=f"{len(table)} sums over {fact(table, 'ranks')} ranks, one after another",
    )
    ax.grid(axis="y")
    return canvas.finish(figure, sources(table))


def cost_chart(table: pd.DataFrame) -> Figure:
    """Wall time of bare torchrun, of a later launch() for one point and for a sweep: start-up, then the rest."""
    order = [way for way in _WAYS if way in set(table["way"])]
    ways = table.set_index("way").loc[order]
    figure, (ax,) = panels(1, rows=len(order))
    rows(ax, [_WAYS[way] + (f" of {fact(table, 'points')} points" if way == "sweep" else "") for way in order])
    measuring = "first step, measuring, ending"
    bars(ax, ways["seconds"], color=canvas.COMPUTE, spread=ways["spread_seconds"], label=measuring)
    bars(ax, ways["startup_seconds"], color=canvas.WAIT, label="start-up")
    for place, row in enumerate(ways.itertuples()):
        end = row.seconds + row.spread_seconds
        beside(ax, end, place, f"{units.seconds(row.seconds)}, {row.over_torchrun:.2f}×")
    longest = (ways["seconds"] + ways["spread_seconds"]).max()
    ax.set(xlabel="seconds of wall time, from call to return", xlim=(0, longest * 1.25), title="What a launch costs")
    canvas.legend_above(ax)
    return canvas.finish(figure, f"{sources(table)} · {int(ways['count'].min())} pairs")


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
