"""Times by sequence length: plain attention's, printed ones, the race's rates, the sweep's floor."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.charts import canvas
from labkit.charts.parts import panels
from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import ATTENTION_NAMES

_COLORS = dict(
    zip(
        ("flash", "sdpa_flash", "sdpa_cudnn", "plain", "tiled", "compiled", "by_hand", "sdpa_efficient"),
        canvas.SERIES,
        strict=True,
    )
)
_TITLES = {"forward": "forward", "backward": "backward", "both": "forward + backward"}
DASHES: Any = (0, (4, 2))
_CLOCKS: Any = {"launched": "-", "captured": DASHES}
_AT = {"sequence": 16384, "head_dim": 64}  # what the reader predicts
_PANEL = ["precision", "head_dim"]
_HEAD_DIMS = {16: canvas.SERIES[0], 32: canvas.SERIES[4], 64: canvas.SERIES[1], 128: canvas.SERIES[2]}


def race_chart(table: pd.DataFrame, phase: str = "both", guess=None) -> Figure:
    """Rate by sequence length, a colour an implementation, a panel a head dimension; dashes are the captured clock.

    All are credited with the same operations, so twice the rate is half the time. ✕ at the bottom: out of memory.
    `guess` (ms at N = 16 384, d = 64; a number or a Prediction) stands as the rate that it means.
    """
    rows = table[table["phase"] == phase]
    scale, unit = (1, "TFLOP/s") if rows["tflops"].max() >= 1 else (1e6, "MFLOP/s")
    by_panel = list(rows.groupby(_PANEL, sort=False))
    figure, axes = panels(len(by_panel), height=4.3, sharey=True)
    for ax, ((precision, head_dim), own) in zip(axes, by_panel, strict=True):
        for name in _COLORS:
            lines = own[own["implementation"] == name].groupby("clock", sort=False)
            for clock, line in lines:
                ax.plot(
                    line["sequence"],
                    scale * line["tflops"],
                    color=_COLORS[name],
                    ls=_CLOCKS[clock],
                    lw=1.4,
                    ms=4,
                    marker="o",
                    label=ATTENTION_NAMES[name] if clock == "launched" else None,
                )
            _cross(ax, own[(own["implementation"] == name) & _out_of_memory(own["status"])], 0.04, _COLORS[name])
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
        ax.set_title(f"{_TITLES[phase].capitalize()}, d = {head_dim}, {precision}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel(f"{unit} (log)")
    _legend(axes[0], captured="captured" in set(rows["clock"]), failed=_out_of_memory(rows["status"]).any())
    return canvas.finish(figure, fact(table, "source"))


def sweep_chart(table: pd.DataFrame, phase: str = "both") -> Figure:
    """Time by sequence length, ours and (dashed) plain attention's, a colour a head dimension, a panel a precision.

    What is flat is the floor: there the time does not follow the work. ✕ at the top: plain runs out of memory.
    """
    rows = table[table["phase"] == phase]
    precisions = list(dict.fromkeys(rows["precision"]))
    figure, axes = panels(len(precisions), height=4.3, sharey=True)
    for ax, precision in zip(axes, precisions, strict=True):
        for head_dim, own in rows[rows["precision"] == precision].groupby("head_dim"):
            color = _HEAD_DIMS.get(head_dim, canvas.INK)
            for column, dashes in (("flash_ms", "-"), ("plain_ms", DASHES)):
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
        ax.set_title(f"{_TITLES[phase].capitalize()}, {precision}")
        ax.grid(True)
    first = axes[0]
    canvas.logarithmic(first.yaxis)
    first.set_ylabel("ms (log)")
    for label, dashes in (("ours", "-"), (ATTENTION_NAMES["plain"], DASHES)):
        first.plot([], [], color=canvas.QUIET, lw=1.3, ls=dashes, label=label)
    _legend(first, captured=False, failed=_out_of_memory(rows["plain_status"]).any())
    return canvas.finish(figure, fact(table, "source"))


def _guess(ax: Axes, rows: pd.DataFrame, guess_ms: float | None, scale: float) -> None:
    """Mark the reader's time as a rate, where the panel holds what it was predicted for."""
    known = rows[(rows[list(_AT)] == pd.Series(_AT)).all(axis=1) & rows["ms"].notna()]
    if guess_ms and len(known):
        rate = scale * known["tflops"].iloc[0] * known["ms"].iloc[0] / guess_ms
        ax.plot(_AT["sequence"], rate, "D", color=canvas.PREDICTED, zorder=4, ls="", label="your prediction")


def _cross(ax: Axes, rows: pd.DataFrame, height: float, color: str) -> None:
    at = [height] * len(rows)
    ax.plot(rows["sequence"], at, "X", ms=9, color=color, mec="white", transform=ax.get_xaxis_transform())


def _out_of_memory(status: pd.Series) -> pd.Series:
    return status.notna() & (status != "ok")


def _legend(ax: Axes, *, captured: bool, failed: bool) -> None:
    if captured:
        ax.plot([], [], color=canvas.QUIET, lw=1.4, ls=_CLOCKS["captured"], label="captured clock")
    if failed:
        ax.plot([], [], "X", ms=8, color=canvas.QUIET, label="out of memory")
    canvas.legend_above(ax, columns=7)


# Problem and implementation of the assignment: colour, marker, name.
_PRINTED = {
    ("pytorch_attention", "by_hand"): (canvas.SERIES[0], "o", "eager"),
    ("torch_compile", "by_hand"): (canvas.SERIES[4], "s", "eager, other problem"),
    ("torch_compile", "compiled"): (canvas.SERIES[1], "^", "compiled"),
}
IMPLEMENTATIONS = {
    "by_hand": (canvas.SERIES[0], "o", "softmax by hand"),
    "plain": (canvas.SERIES[2], "s", "torch's softmax"),
    "compiled": (canvas.SERIES[1], "^", "compiled"),
    "flash": (canvas.SERIES[3], "D", "flash"),
}
BAD = canvas.PREDICTED
_LINE: Any = {"ms": 5, "lw": 1.3}


def plain_chart(table: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Forward and backward by sequence length at one head dimension; dashes are a clock that waits for nobody.

    The black line is the least that the GPU needs for plain attention; a ring is a time that it does not allow. Both
    axes are logarithmic.
    """
    table = table[table["head_dim"] == head_dim]
    figure, axes = _phase_panels(head_dim, table["sequence"], height=4.3)
    for phase, ax in axes.items():
        for name, own in table.groupby("implementation", sort=False):
            color, marker, label = IMPLEMENTATIONS[name]
            ax.plot(own["sequence"], own[f"{phase}_ms"], color=color, marker=marker, label=label, **_LINE)
            if phase == "forward":
                ax.plot(own["sequence"], own["unsynchronised_ms"], color=color, marker=marker, ms=4, lw=1.1, ls=DASHES)
        for clock in (phase, "unsynchronised") if phase == "forward" else (phase,):
            _ring(ax, table[table[f"{clock}_verdict"] == "impossible"], f"{clock}_ms")
        least = table[table["implementation"] == "plain"]
        if least[f"{phase}_least_ms"].notna().any():
            ax.plot(least["sequence"], least[f"{phase}_least_ms"], color=canvas.THEORY, lw=1.3, label="least, plain")
    first = axes["forward"]
    canvas.logarithmic(first.yaxis)
    fastest = table[["forward_ms", "backward_ms", "unsynchronised_ms"]].min(axis=None)
    first.set_ylim(bottom=fastest / 2)  # the least of short sequences lies far below
    first.plot([], [], color=canvas.QUIET, lw=1.1, ls=DASHES, label="not waited for")
    if table.filter(like="verdict").eq("impossible").any(axis=None):
        first.plot([], [], "o", ms=9, mfc="none", mec=BAD, mew=1.6, label="impossible")
    canvas.legend_above(first, columns=6)
    return canvas.finish(figure, fact(table, "source"))


def attention_chart(times: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Printed times by sequence length at one head dimension, a panel a phase; a ring where a time is impossible.

    The lines without markers are the least that an H100 needs, for eager attention (black: scores go through memory)
    and for compiled (dotted: one kernel might do all). Both axes are logarithmic.
    """
    table = times[times["head_dim"] == head_dim]
    figure, axes = _phase_panels(head_dim, table["sequence"], height=4.2)
    for phase, ax in axes.items():
        rows = table[table["phase"] == phase]
        for (problem, implementation), (color, marker, name) in _PRINTED.items():
            own = rows[(rows["problem"] == problem) & (rows["implementation"] == implementation)]
            ax.plot(own["sequence"], own["ms"], color=color, marker=marker, label=name, **_LINE)
        for implementation, dashes, name in (("by_hand", "-", "least, eager"), ("compiled", ":", "least, compiled")):
            own = rows[rows["implementation"] == implementation].drop_duplicates("sequence")
            ax.plot(own["sequence"], own["least_ms"], color=canvas.THEORY, ls=dashes, lw=1.3, label=name)
        _ring(ax, rows[rows["verdict"] == "impossible"], "ms", label="impossible")
    canvas.logarithmic(axes["forward"].yaxis)
    canvas.legend_above(axes["forward"], columns=6)
    return canvas.finish(figure, fact(times, "source"))


def _phase_panels(head_dim: int, sequences: pd.Series, height: float) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure and a panel per phase (forward, backward), ms by sequence length, on one vertical axis."""
    figure, axes = panels(2, height=height, sharey=True)
    by_phase: dict[str, Axes] = dict(zip(("forward", "backward"), axes, strict=True))
    for phase, ax in by_phase.items():
        mark_lengths(ax, sequences)
        ax.set_title(f"{phase.capitalize()}, head dimension {head_dim}")
        ax.grid(True)
    axes[0].set_ylabel("ms")
    return figure, by_phase


def _ring(ax: Axes, rows: pd.DataFrame, column: str, **named: Any) -> None:
    ax.plot(rows["sequence"], rows[column], "o", ms=12, mfc="none", mec=BAD, mew=1.6, **named)


_MOST = 7  # names that fit under one of two panels


def mark_lengths(ax: Axes, sequences: pd.Series) -> None:
    """Mark the lengths on a logarithmic axis; where they are many, every second one, with the longest among them."""
    lengths = sorted(set(sequences))
    named = lengths[:: -math.ceil(len(lengths) / _MOST)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(named), minor_locator=NullLocator())
    ax.set_xticks(named, [units.count(length) for length in named], fontsize=8.5)
    ax.set_xlabel("sequence length, tokens")
