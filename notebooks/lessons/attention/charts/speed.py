"""Times by sequence length: plain attention's, printed ones, the race's rates, the sweep's floor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas
from labkit.charts.parts import panels
from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import ATTENTION_NAMES

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
    "compiled": (canvas.SERIES[4], "^"),
    "by_hand": (canvas.SERIES[6], "o"),
    "sdpa_efficient": (canvas.SERIES[7], "o"),
}
_TITLES = {"forward": "forward", "backward": "backward", "both": "forward + backward"}
_NOTE: Any = {"va": "top", "fontsize": 9, "color": canvas.QUIET}
DASHES: Any = (0, (4, 2))
_CLOCKS: Any = {"launched": "-", "captured": DASHES}
_AT = {"sequence": 16384, "head_dim": 64}  # what the reader predicts
_PANEL = ["precision", "head_dim"]
_HEAD_DIMS = {16: canvas.SERIES[0], 32: canvas.SERIES[4], 64: canvas.SERIES[1], 128: canvas.SERIES[2]}


def race_chart(table: pd.DataFrame, phase: str = "both", guess=None) -> Figure:
    """Rate by sequence length, one colour per implementation, one panel per head dimension; dashes: captured clock.

    All are credited with the same operations, so twice the rate is half the time. ✕ at the bottom: out of memory.
    `guess` (ms at N = 16 384, d = 64; a number or a Prediction) stands as the rate that it means.
    """
    rows = table[table["phase"] == phase]
    scale, unit = (1, "TFLOP/s") if rows["tflops"].max() >= 1 else (1e6, "MFLOP/s")
    by_panel = list(rows.groupby(_PANEL, sort=False))
    figure, axes = panels(len(by_panel), height=4.3, sharey=True)
    for ax, ((precision, head_dim), group) in zip(axes, by_panel, strict=True):
        for name, (color, marker) in STYLES.items():
            lines = group[group["implementation"] == name].groupby("clock", sort=False)
            for clock, line in lines:
                label = ATTENTION_NAMES[name] if clock == "launched" else None
                drawn: Any = {"color": color, "marker": marker, "ms": 4, "lw": 1.4, "ls": _CLOCKS[clock]}
                ax.plot(line["sequence"], scale * line["tflops"], label=label, **drawn)
            _cross(ax, group[(group["implementation"] == name) & _out_of_memory(group["status"])], 0.04, color)
        peak = group["peak_tflops"].max()
        if pd.notna(peak):
            ax.axhline(peak, color=canvas.THEORY, lw=1)
            ax.text(0.02, 0.9 * peak, f"peak for {precision}", transform=ax.get_yaxis_transform(), **_NOTE)
        _guess(ax, group, getattr(guess, "value", guess), scale)
        mark_lengths(ax, rows["sequence"])
        ax.set_title(f"{_TITLES[phase].capitalize()}, d = {head_dim}, {precision}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel(f"{unit} (log)")
    _legend(axes[0], captured="captured" in set(rows["clock"]), failed=_out_of_memory(rows["status"]).any())
    return canvas.finish(figure, fact(table, "source"))


def sweep_chart(table: pd.DataFrame, phase: str = "both") -> Figure:
    """Time by sequence length: our FlashAttention (solid) and plain attention (dashed), one colour per head dimension.

    What is flat is the floor: there the time does not follow the work. ✕ at the top: plain runs out of memory.
    """
    rows = table[table["phase"] == phase]
    precisions = list(dict.fromkeys(rows["precision"]))
    figure, axes = panels(len(precisions), height=4.3, sharey=True)
    for ax, precision in zip(axes, precisions, strict=True):
        for head_dim, group in rows[rows["precision"] == precision].groupby("head_dim"):
            color = _HEAD_DIMS.get(head_dim, canvas.INK)
            for column, dashes in (("flash_ms", "-"), ("plain_ms", DASHES)):
                label = f"d = {head_dim}" if column == "flash_ms" else None
                drawn: Any = {"color": color, "marker": "o", "ms": 3.5, "lw": 1.3, "ls": dashes}
                ax.plot(group["sequence"], group[column], label=label, **drawn)
            _cross(ax, group[_out_of_memory(group["plain_status"])], 0.96, color)
        mark_lengths(ax, rows["sequence"])
        ax.set_title(f"{_TITLES[phase].capitalize()}, {precision}")
        ax.grid(True)
    first = axes[0]
    canvas.logarithmic(first.yaxis)
    first.set_ylabel("ms (log)")
    for name, dashes in (("flash", "-"), ("plain", DASHES)):
        first.plot([], [], color=canvas.QUIET, lw=1.3, ls=dashes, label=ATTENTION_NAMES[name])
    _legend(first, captured=False, failed=_out_of_memory(rows["plain_status"]).any())
    return canvas.finish(figure, fact(table, "source"))


def _guess(ax: Axes, rows: pd.DataFrame, guess_ms: float | None, scale: float) -> None:
    """Mark the reader's time as a rate, where the panel holds what it was predicted for."""
    predicted_rows = rows[(rows[list(_AT)] == pd.Series(_AT)).all(axis=1) & rows["ms"].notna()]
    if guess_ms and len(predicted_rows):
        rate = scale * predicted_rows["tflops"].iloc[0] * predicted_rows["ms"].iloc[0] / guess_ms
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


_PRINTED = {  # problem of the assignment and implementation: marker and name
    ("pytorch_attention", "by_hand"): ("o", "eager, first table"),
    ("torch_compile", "by_hand"): ("s", "eager, second table"),
    ("torch_compile", "compiled"): ("^", "compiled, second table"),
}
BAD = canvas.PREDICTED
_LINE: Any = {"ms": 5, "lw": 1.3}


def plain_chart(table: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Forward and backward by sequence length at one head dimension; dashes are a clock that does not wait for the GPU.

    The black line is the least that the GPU needs for plain attention; a ring is a time that it does not allow. Both
    axes are logarithmic.
    """
    table = table[table["head_dim"] == head_dim]
    figure, axes = _phase_panels(head_dim, table["sequence"], height=4.3)
    for phase, ax in axes.items():
        for name, group in table.groupby("implementation", sort=False):
            color, marker = STYLES[name]
            named = {"label": ATTENTION_NAMES[name]}
            ax.plot(group["sequence"], group[f"{phase}_ms"], color=color, marker=marker, **named, **_LINE)
            if phase == "forward":
                dashed: Any = {"color": color, "marker": marker, "ms": 4, "lw": 1.1, "ls": DASHES}
                ax.plot(group["sequence"], group["unsynchronised_ms"], **dashed)
        for clock in (phase, "unsynchronised") if phase == "forward" else (phase,):
            _ring(ax, table[table[f"{clock}_verdict"] == "impossible"], f"{clock}_ms")
        least = table[table["implementation"] == "plain"]
        if least[f"{phase}_least_ms"].notna().any():
            ax.plot(
                least["sequence"], least[f"{phase}_least_ms"], color=canvas.THEORY, lw=1.3, label="least time, plain"
            )
    first = axes["forward"]
    canvas.logarithmic(first.yaxis)
    fastest = table[["forward_ms", "backward_ms", "unsynchronised_ms"]].min(axis=None)
    first.set_ylim(bottom=fastest / 2)  # the least of short sequences lies far below
    first.plot([], [], color=canvas.QUIET, lw=1.1, ls=DASHES, label="without waiting")
    if table.filter(like="verdict").eq("impossible").any(axis=None):
        first.plot([], [], "o", ms=9, mfc="none", mec=BAD, mew=1.6, label="impossible")
    canvas.legend_above(first, columns=6)
    return canvas.finish(figure, fact(table, "source"))


def attention_chart(times: pd.DataFrame, head_dim: int = 64) -> Figure:
    """Printed times by sequence length at one head dimension, one panel per phase; a ring where a time is impossible.

    The lines without markers are the least that an H100 needs, for eager attention (black: scores go through memory)
    and for compiled (dotted: one kernel might do all). Both axes are logarithmic.
    """
    table = times[times["head_dim"] == head_dim]
    figure, axes = _phase_panels(head_dim, table["sequence"], height=4.5)
    for phase, ax in axes.items():
        rows = table[table["phase"] == phase]
        for (problem, implementation), (marker, name) in _PRINTED.items():
            group = rows[(rows["problem"] == problem) & (rows["implementation"] == implementation)]
            color, dashes = STYLES[implementation][0], DASHES if marker == "s" else "-"
            ax.plot(group["sequence"], group["ms"], color=color, marker=marker, ls=dashes, label=name, **_LINE)
        for implementation, dashes, name in (
            ("by_hand", "-", "least time, eager"),
            ("compiled", ":", "least time, compiled"),
        ):
            group = rows[rows["implementation"] == implementation].drop_duplicates("sequence")
            ax.plot(group["sequence"], group["least_ms"], color=canvas.THEORY, ls=dashes, lw=1.3, label=name)
        _ring(ax, rows[rows["verdict"] == "impossible"], "ms", label="impossible")
    canvas.logarithmic(axes["forward"].yaxis)
    canvas.legend_above(axes["forward"], columns=3)
    return canvas.finish(figure, fact(times, "source"))


def compiled_chart(gains: pd.DataFrame) -> Figure:
    """Eager attention's time over compiled attention's, one panel per phase, one colour per head dimension.

    Solid lines are measured, dashed lines are what the report prints; 1 is no gain.
    """
    figure, axes = panels(2, height=4.0, sharey=True)
    for ax, (phase, rows) in zip(axes, gains.groupby("phase", sort=False), strict=True):
        for head_dim, line in rows.groupby("head_dim"):
            color = _HEAD_DIMS.get(head_dim, canvas.INK)
            ax.plot(line["sequence"], line["gain"], color=color, marker="o", ms=4, lw=1.4, label=f"d = {head_dim}")
            ax.plot(line["sequence"], line["printed_gain"], color=color, marker="o", ms=3, lw=1.1, ls=DASHES)
        ax.axhline(1, color=canvas.THEORY, lw=1)
        mark_lengths(ax, gains["sequence"])
        ax.set_title(phase.capitalize())
        ax.grid(True)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("eager time / compiled time")
    axes[0].plot([], [], color=canvas.QUIET, lw=1.4, label="measured, waited for")
    axes[0].plot([], [], color=canvas.QUIET, lw=1.1, ls=DASHES, label="printed")
    canvas.legend_above(axes[0], columns=6)
    return canvas.finish(figure, fact(gains, "source"))


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
    from matplotlib.ticker import FixedLocator, NullLocator

    lengths = sorted(set(sequences))
    named = lengths[:: -math.ceil(len(lengths) / _MOST)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(named), minor_locator=NullLocator())
    ax.set_xticks(named, [units.count(length) for length in named], fontsize=8.5)
    ax.set_xlabel("sequence length, tokens")
