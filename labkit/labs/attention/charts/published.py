"""The published times beside what an H100 needs at least, and what Triton won by the length of the sequence."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.ui import canvas

# Problem and implementation of the assignment: colour, marker, name.
PRINTED = {
    ("pytorch_attention", "by_hand"): (canvas.SERIES[0], "o", "eager"),
    ("torch_compile", "by_hand"): (canvas.SERIES[4], "s", "eager, other problem"),
    ("torch_compile", "compiled"): (canvas.SERIES[1], "^", "compiled"),
}
HEAD_DIMS = {16: canvas.SERIES[0], 32: canvas.SERIES[4], 64: canvas.SERIES[1], 128: canvas.SERIES[2]}
DASHES = {"float32": "-", "bfloat16": (0, (4, 2))}
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
        _lengths(ax, rows["sequence"])
        ax.set_title(f"{phase.capitalize()}, head dimension {head_dim}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("ms")
    canvas.legend_above(axes[0], columns=6)
    return canvas.finish(figure, times.attrs["source"])


def flash_chart(speedups: pd.DataFrame, flash: pd.DataFrame) -> Figure:
    """How many times as fast Triton is as PyTorch, forward and backward, and the rate of both together.

    A colour a head dimension; dashes are bfloat16. Below 1 Triton loses.
    """
    figure, axes = canvas.canvas(3, height=4.2)
    axes[1].sharey(axes[0])
    rates = flash[(flash["implementation"] == "flash") & (flash["phase"] == "both")]
    panels = [(phase, speedups[speedups["phase"] == phase], "speedup") for phase in ("forward", "backward")]
    for ax, (phase, rows, column) in zip(axes, [*panels, ("forward + backward", rates, "tflops")], strict=True):
        for (head_dim, precision), own in rows.groupby(["head_dim", "precision"], sort=False):
            own = own.sort_values("sequence")
            name = f"head dimension {head_dim}" if precision == "float32" else None
            ax.plot(own["sequence"], own[column], color=HEAD_DIMS[head_dim], ls=DASHES[precision], marker="o", ms=4,
                    lw=1.3, label=name)  # fmt: skip
        _lengths(ax, rows["sequence"])
        ax.set_title(phase.capitalize())
        ax.set_ylabel("TFLOP/s of Triton" if column == "tflops" else "times as fast as PyTorch")
        ax.axhline(1 if column == "speedup" else rates["peak_tflops"].max(), color=canvas.THEORY, lw=1)
        ax.grid(True)
    for ax in (axes[0], axes[2]):
        canvas.logarithmic(ax.yaxis)
    axes[2].annotate("peak of bfloat16", (0.03, rates["peak_tflops"].max()), va="top", fontsize=9, color=canvas.QUIET,
                     xycoords=axes[2].get_yaxis_transform(), xytext=(0, -5), textcoords="offset points")  # fmt: skip
    axes[0].plot([], [], color=canvas.QUIET, lw=1.3, ls=DASHES["bfloat16"], label="bfloat16")
    canvas.legend_above(axes[0])
    return canvas.finish(figure, flash.attrs["source"])


def _lengths(ax: Axes, sequences: pd.Series) -> None:
    """Mark the lengths that were printed on a logarithmic axis."""
    lengths = sorted(set(sequences))
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(lengths), minor_locator=NullLocator())
    ax.set_xticks(lengths, [f"{length:,}".replace(",", " ") for length in lengths], fontsize=8.5)
    ax.set_xlabel("sequence length, tokens")
