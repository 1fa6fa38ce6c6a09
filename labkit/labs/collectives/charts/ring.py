"""The ring all-reduce, step by step: which rank holds how much of which chunk."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from labkit.charts import canvas
from labkit.labs.collectives.theory.steps import ALL_GATHER, START, Step

SHADES = LinearSegmentedColormap.from_list("parts", ["#EDF4F9", canvas.COMPUTE])
MOVED = canvas.COMMUNICATE
NAMED = 6  # ranks up to which a cell has room for its number
SOURCE = "computed, not measured"


def shade(values: int, ranks: int) -> str:
    """Give the colour of a chunk that holds the values of so many of the ranks: the full blue is a whole one."""
    return to_hex(SHADES((values - 1) / (ranks - 1)))


def ring_chart(steps: Sequence[Step]) -> Figure:
    """Ranks × chunks after every step, the number of ranks whose values a chunk holds in it; N panels a row.

    A frame stands around what has just arrived: first it was added, then it replaced what was there.
    """
    ranks = len(steps[0].held)
    figure, axes = canvas.canvas(ranks, 2, height=4.4, squeeze=False, sharex=True, sharey=True)
    places = [*axes[0], *axes[1][1:]]  # the gathering stands under the reducing, its first panel under the first sum
    for ax, step in zip(places, steps, strict=True):
        _draw(ax, step, ranks)
    axes[1][0].remove()
    for name, part in {"its own values only": 0.0, "a partial sum": 0.5, "whole: all ranks' values": 1.0}.items():
        axes[0][0].plot([], [], "s", ms=10, color=SHADES(part), label=name)
    axes[0][0].plot([], [], "s", ms=9, mfc="none", mec=MOVED, mew=2.5, label="has just arrived")
    canvas.legend_above(axes[0][0])
    return canvas.finish(figure, SOURCE)


def _draw(ax: Axes, step: Step, ranks: int) -> None:
    for rank, row in enumerate(step.held):
        for chunk, parts in enumerate(row):
            values, corner = len(parts), (chunk - 0.5, rank - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, facecolor=shade(values, ranks), edgecolor="white", lw=2))
            if ranks <= NAMED:
                ink = "white" if values > 0.6 * ranks else canvas.INK
                ax.text(chunk, rank, values, ha="center", va="center", fontsize=9, color=ink)
    for rank, move in enumerate(step.moves):
        ax.add_patch(Rectangle((move.receive - 0.42, rank - 0.42), 0.84, 0.84, fill=False, edgecolor=MOVED, lw=2.2))
    ax.set(xlim=(-0.5, ranks - 0.5), ylim=(ranks - 0.5, -0.5), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))
    ax.spines[:].set_visible(False)
    verb = {START: "start", ALL_GATHER: "replaced"}.get(step.phase, "added")
    ax.set_title(verb if step.phase == START else f"step {step.number}: {verb}", fontsize=10)
    if step.number in (0, ranks):
        ax.set_ylabel("rank")
    if step.number >= ranks:
        ax.set_xlabel("chunk")
