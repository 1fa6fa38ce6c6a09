"""The published times beside what an H100 needs at least."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.attention.charts.lengths import mark_lengths

# Problem and implementation of the assignment: colour, marker, name.
PRINTED = {
    ("pytorch_attention", "by_hand"): (canvas.SERIES[0], "o", "eager"),
    ("torch_compile", "by_hand"): (canvas.SERIES[4], "s", "eager, other problem"),
    ("torch_compile", "compiled"): (canvas.SERIES[1], "^", "compiled"),
}
BAD = canvas.PREDICTED


def attention_chart(times: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Printed times by sequence length at one head dimension, a panel a phase; a ring where a time is impossible.

    The lines without markers are the least that an H100 needs, for eager attention (black: scores go through memory)
    and for compiled (dotted: one kernel might do all). Both axes are logarithmic.
    """
    figure, axes = canvas.canvas(2, height=4.2, sharey=True)
    for ax, phase in zip(axes, ("forward", "backward"), strict=True):
        rows = times[(times["phase"] == phase) & (times["head_dim"] == head_dim)]
        for (problem, implementation), (color, marker, name) in PRINTED.items():
            own = rows[(rows["problem"] == problem) & (rows["implementation"] == implementation)]
            ax.plot(own["sequence"], own["ms"], color=color, marker=marker, ms=5, lw=1.3, label=name)
        for implementation, dashes in (("by_hand", "-"), ("compiled", ":")):
            own = rows[rows["implementation"] == implementation].drop_duplicates("sequence")
            name = {"by_hand": "least, eager", "compiled": "least, compiled"}[implementation]
            ax.plot(own["sequence"], own["least_ms"], color=canvas.THEORY, ls=dashes, lw=1.3, label=name)
        wrong = rows[rows["verdict"] == "impossible"]
        ax.plot(wrong["sequence"], wrong["ms"], "o", ms=12, mfc="none", mec=BAD, mew=1.6, label="impossible")
        ax.set_yscale("log")
        mark_lengths(ax, rows["sequence"])
        ax.set_title(f"{phase.capitalize()}, head dimension {head_dim}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("ms")
    canvas.legend_above(axes[0], columns=6)
    return canvas.finish(figure, times.attrs["source"])
