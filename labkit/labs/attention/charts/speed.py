"""Who is faster at which length, where the floor is, and what a tile is worth, as pictures."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.attention.charts.memory import mark_lengths

NAMES = {
    "plain": "plain PyTorch",
    "by_hand": "by hand",
    "compiled": "compiled",
    "tiled": "tiles in PyTorch",
    "flash": "ours",
    "sdpa_flash": "SDPA-flash",
    "sdpa_cudnn": "cuDNN",
    "sdpa_efficient": "SDPA-efficient",
}
COLORS = dict(
    zip(
        ("flash", "sdpa_flash", "sdpa_cudnn", "plain", "tiled", "compiled", "by_hand", "sdpa_efficient"),
        canvas.SERIES,
        strict=True,
    )
)
PHASES = {"forward": canvas.SERIES[4], "backward": canvas.SERIES[1], "both": canvas.INK}
TITLES = {"forward": "forward", "backward": "backward", "both": "forward + backward"}
CLOCKS = {"launched": "-", "captured": (0, (4, 2))}
OURS = "flash"
AT = {"sequence": 16384, "head_dim": 64}  # what the reader predicts
PANEL = ["precision", "head_dim"]
HEAD_DIMS = {16: canvas.SERIES[0], 32: canvas.SERIES[4], 64: canvas.SERIES[1], 128: canvas.SERIES[2]}
DASHES = {"float32": "-", "bfloat16": (0, (4, 2))}


def race_chart(table: pd.DataFrame, phase: str = "both", guess=None) -> Figure:
    """Rate by sequence length, a colour an implementation, a panel a head dimension; dashes are the captured clock.

    All are credited with the same operations, so twice the rate is half the time. ✕ at the bottom: out of memory.
    `guess` (ms at N = 16 384, d = 64; a number or a Prediction) stands as the rate that it means.
    """
    rows = table[table["phase"] == phase]
    scale, unit = (1, "TFLOP/s") if rows["tflops"].max() >= 1 else (1e6, "MFLOP/s")
    figure, axes, panels = _panels(rows, height=4.3)
    for ax, ((precision, head_dim), own) in zip(axes, panels, strict=True):
        for name in COLORS:
            lines = own[own["implementation"] == name].groupby("clock", sort=False)
            for clock, line in lines:
                ax.plot(
                    line["sequence"],
                    scale * line["tflops"],
                    color=COLORS[name],
                    ls=CLOCKS[clock],
                    lw=1.4,
                    ms=4,
                    marker="o",
                    label=NAMES[name] if clock == "launched" else None,
                )
            _cross(ax, own[(own["implementation"] == name) & _out_of_memory(own["status"])], 0.04, COLORS[name])
        peak = own["peak_tflops"].max()
        if pd.notna(peak):
            ax.axhline(peak, color=canvas.THEORY, lw=1)
            ax.annotate(
                f"peak for {precision}",
                (0.02, peak),
                va="top",
                fontsize=9,
                color=canvas.QUIET,
                xycoords=ax.get_yaxis_transform(),
                xytext=(0, -4),
                textcoords="offset points",
            )
        _guess(ax, own, getattr(guess, "value", guess), scale)
        mark_lengths(ax, rows["sequence"])
        ax.set_title(f"{TITLES[phase].capitalize()}, d = {head_dim}, {precision}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel(f"{unit} (log)")
    _legend(axes[0], captured="captured" in set(rows["clock"]), failed=_out_of_memory(rows["status"]).any())
    return canvas.finish(figure, table.attrs["source"])


def sweep_chart(table: pd.DataFrame, phase: str = "both") -> Figure:
    """Time by sequence length, ours and (dashed) plain attention's, a colour a head dimension, a panel a precision.

    What is flat is the floor: there the time does not follow the work. ✕ at the top: plain runs out of memory.
    """
    rows = table[table["phase"] == phase]
    precisions = list(dict.fromkeys(rows["precision"]))
    figure, axes = canvas.canvas(len(precisions), height=4.3, sharey=True, squeeze=False)
    for ax, precision in zip(axes[0], precisions, strict=True):
        for head_dim, own in rows[rows["precision"] == precision].groupby("head_dim"):
            color = HEAD_DIMS.get(head_dim, canvas.INK)
            for column, dashes in (("flash_ms", "-"), ("plain_ms", DASHES["bfloat16"])):
                ax.plot(
                    own["sequence"],
                    own[column],
                    color=color,
                    ls=dashes,
                    marker="o",
                    ms=3.5,
                    lw=1.3,
                    label=f"d = {head_dim}" if column == "flash_ms" else None,
                )
            _cross(ax, own[_out_of_memory(own["plain_status"])], 0.96, color)
        mark_lengths(ax, rows["sequence"])
        ax.set_title(f"{TITLES[phase].capitalize()}, {precision}")
        ax.grid(True)
    first = axes[0, 0]
    canvas.logarithmic(first.yaxis)
    first.set_ylabel("ms (log)")
    for label, dashes in (("ours", "-"), (NAMES["plain"], DASHES["bfloat16"])):
        first.plot([], [], color=canvas.QUIET, lw=1.3, ls=dashes, label=label)
    _legend(first, captured=False, failed=_out_of_memory(rows["plain_status"]).any())
    return canvas.finish(figure, table.attrs["source"])


def _panels(rows: pd.DataFrame, height: float) -> tuple[Figure, list[Axes], list]:
    """Give a figure with a panel a precision and head dimension, all with one vertical axis."""
    panels = list(rows.groupby(PANEL, sort=False))
    figure, axes = canvas.canvas(len(panels), height=height, sharey=True, squeeze=False)
    return figure, list(axes[0]), panels


def _guess(ax: Axes, rows: pd.DataFrame, guess_ms: float | None, scale: float) -> None:
    """Mark the reader's time as a rate, where the panel holds what it was predicted for."""
    known = rows[(rows[list(AT)] == pd.Series(AT)).all(axis=1) & rows["ms"].notna()]
    if guess_ms and len(known):
        rate = scale * known["tflops"].iloc[0] * known["ms"].iloc[0] / guess_ms
        ax.plot(AT["sequence"], rate, "D", color=canvas.PREDICTED, zorder=4, ls="", label="your prediction")


def _cross(ax: Axes, rows: pd.DataFrame, height: float, color: str) -> None:
    at = [height] * len(rows)
    ax.plot(rows["sequence"], at, "X", ms=9, color=color, mec="white", transform=ax.get_xaxis_transform())


def _out_of_memory(status: pd.Series) -> pd.Series:
    return status.notna() & (status != "ok")


def _legend(ax: Axes, *, captured: bool, failed: bool) -> None:
    if captured:
        ax.plot([], [], color=canvas.QUIET, lw=1.4, ls=CLOCKS["captured"], label="captured clock")
    if failed:
        ax.plot([], [], "X", ms=8, color=canvas.QUIET, label="out of memory")
    canvas.legend_above(ax, columns=7)


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
