"""Tables → figures: lines of two nodes, steps by strategy and rate, local steps, and theory of many more GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, where
from labkit.story import units
from labkit.theory.traffic import ring_bytes
from lessons.beyond_the_node.theory import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLACES = {"inside": "inside a node", "between": "between nodes"}
_BYTES_PER_KIB = 1024


def rate_name(link_mbit: float) -> str:
    """Return how a rate of the link is called on a chart: "100 Mbit/s", or "not shaped"."""
    return f"{int(link_mbit)} Mbit/s" if link_mbit else "not shaped"


def rate_looks(*tables: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Return colour, marker and name per rate of the tables' links, the fastest first: the same for the same rates."""
    rates = {int(rate) for table in tables for rate in table["link_mbit"]}
    looks = canvas.looks(sorted(rates, reverse=True))
    return {rate: look | {"label": rate_name(rate)} for rate, look in looks.items()}


def lines_chart(*pairs: tuple[pd.DataFrame, pd.DataFrame], guess: Any = None) -> Figure:
    """Time of an all-reduce by size, inside a node and between nodes, with the fitted lines; a panel per run.

    Each pair is `messages` and its `two_lines`. `guess` is a predicted time in ms of 1 MiB at the slowest link.
    """
    runs = parts.distinct(pairs)
    figure, shown = parts.panel_each(runs, height=4.4, sharey=True)
    looks = rate_looks(*(lines for _, lines in runs))
    for ax, (table, lines) in shown:
        for line in lines.itertuples():
            _line(ax, table, line, looks[line.link_mbit])
        parts.guess_mark(ax, 1, guess)
        canvas.logarithmic(ax.xaxis)
        canvas.logarithmic(ax.yaxis)
        ax.grid(True)
        ranks = " or ".join(map(str, sorted(set(lines["ranks"]))))
        ax.set(title=f"{where(table)}: all-reduce of {ranks} ranks", xlabel="tensor, MiB (log)")
    shown[0][0].set_ylabel("all-reduce, ms (log)")
    return parts.close(figure, *(table for table, _ in runs), columns=3)


def _line(ax: Axes, table: pd.DataFrame, line: Any, look: dict[str, Any]) -> None:
    """Draw a place's measured points with their spread, and its fitted line."""
    rows = table[(table["place"] == line.place) & (table["link_mbit"] == line.link_mbit)]
    inside = line.place == "inside"
    name = _PLACES[line.place] if inside else f"{_PLACES[line.place]}, {look['label']}"
    look = look | ({"color": canvas.INK, "marker": "p"} if inside else {}) | {"label": name, "ls": "", "capsize": 3}
    mib = rows["kib"] / _BYTES_PER_KIB
    ax.errorbar(mib, rows["call_ms"], yerr=rows["spread_call_ms"], **look)
    sizes = np.geomspace(mib.min(), mib.max(), 50)
    sent_gb = ring_bytes(sizes * _BYTES_PER_KIB**2, line.ranks) / 1e9
    ax.plot(sizes, line.alpha_us / 1e3 + 1e3 * sent_gb / line.beta_gb_per_s, color=look["color"], lw=1)


_SHORT = {"alone": "alone", "ddp": "DDP", "fsdp": "FSDP", "hsdp": "HSDP"}
_COLORS = {
    "ddp": canvas.SERIES[0],
    "flat": canvas.SERIES[0],
    "hierarchical": canvas.SERIES[2],
    "tree": canvas.SERIES[4],
    "fsdp": canvas.SERIES[3],
    "hsdp": canvas.SERIES[1],
}
_MARKS = {"ddp": "o", "fsdp": "s", "hsdp": "D"}


def strategies_chart(*tables: pd.DataFrame) -> Figure:
    """Each strategy's step at each rate, split into what a step alone takes and the rest; sent bytes beside the bar."""
    runs = [(table, table[table["plain"]]) for table in parts.distinct(tables)]
    most = max(len(rows) for _, rows in runs)
    figure, shown = parts.panel_each(runs, rows=most, row_height=0.36, sharex=True)
    for ax, (table, rows) in shown:
        labels = [
            _SHORT[row.strategy] if row.strategy == "alone" else f"{_SHORT[row.strategy]}, {rate_name(row.link_mbit)}"
            for row in rows.itertuples()
        ]
        parts.rows(ax, labels)
        compute = rows[["compute_ms", "step_ms"]].min(axis=1)
        end = parts.bars(ax, compute.to_numpy(), color=canvas.COMPUTE, label="a step alone")
        rest = (rows["step_ms"] - compute).to_numpy()
        look = {"color": canvas.COMMUNICATE, "label": "what the strategy adds"}
        parts.bars(ax, rest, start=end, spread=rows["spread_step_ms"].to_numpy(), **look)
        for place, row in enumerate(rows.itertuples()):
            text = f"{units.number(row.link_mib, 2)} MiB" if row.link_mib > 0.01 else "0 MiB"
            parts.beside(ax, row.step_ms + row.spread_step_ms, place, text, fontsize=8)
        ax.set(title=f"{where(table)}, {fact(table, 'ranks')} ranks", xlabel="ms per step; beside: sent by a node")
        ax.margins(x=0.18)
    return parts.close(figure, *tables)


def turning_chart(table: pd.DataFrame) -> Figure:
    """DDP's efficiency by micro-batches per step (left), and its step by bucket size (right), a line per rate."""
    from matplotlib.ticker import FixedLocator, PercentFormatter

    figure, (left, right) = parts.panels(2, height=3.9)
    ddp = table[table["strategy"] == "ddp"]
    whole = ddp[ddp["bucket_mb"] == ddp["bucket_mb"].iloc[0]].sort_values("accumulation", kind="stable")
    single = ddp[ddp["accumulation"] == 1].sort_values("bucket_mb", kind="stable")
    looks = rate_looks(ddp)
    parts.lines(left, whole, "accumulation", "efficiency", "link_mbit", looks, spread="spread_efficiency")
    parts.lines(right, single, "bucket_mb", "step_ms", "link_mbit", looks, spread="spread_step_ms")
    left.xaxis.set_major_locator(FixedLocator(sorted(set(ddp["accumulation"]))))
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set(ylim=(0, 1.1), title=f"{where(table)}: accumulation", xlabel="micro-batches per step", ylabel="efficiency")
    canvas.logarithmic(right.xaxis)
    right.set_ylim(bottom=0)
    right.set(title=f"{where(table)}: buckets", xlabel="bucket, MiB (log)", ylabel="ms per step")
    for ax in (left, right):
        ax.grid(True)
    return parts.close(figure, table)


def efficiency_chart(*tables: pd.DataFrame) -> Figure:
    """Efficiency by the link's rate: measured points, and a band between nothing hidden and all hidden that can be.

    Takes `strategies` with the lines of the same link.
    """
    from matplotlib.ticker import PercentFormatter

    runs = [table for table in parts.distinct(tables) if (table["link_mbit"] > 0).any()]
    figure, axes = parts.panels(max(1, len(runs)), height=4.2, sharey=True)
    for ax, table in zip(axes, runs, strict=False):
        rows = table[table["plain"]]
        _bands(ax, rows[rows["link_mbit"] > 0])
        parts.knob_axis(ax, rows.loc[rows["link_mbit"] > 0, "link_mbit"], "link between nodes, Mbit/s")
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set(title=f"{where(table)}, {fact(table, 'ranks')} ranks", ylim=(0, 1.1))
        ax.grid(True)
    axes[0].set_ylabel("efficiency, % of a step")
    return parts.close(figure, *(runs or tables))


def _bands(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw each strategy's measured efficiency, a little aside of the others, and its predicted band."""
    for aside, (strategy, marker) in zip((0.94, 1.0, 1.06), _MARKS.items(), strict=True):
        of_strategy, color = rows[rows["strategy"] == strategy].sort_values("link_mbit"), _COLORS[strategy]
        if of_strategy.empty:
            continue
        mbit, name = of_strategy["link_mbit"], _SHORT[strategy]
        band = of_strategy["least_efficiency"].astype(float), of_strategy["most_efficiency"].astype(float)
        ax.fill_between(mbit, *band, color=color, alpha=0.18, lw=0, label=f"{name}, predicted")
        look: dict[str, Any] = {"color": color, "marker": marker, "ls": "", "capsize": 3, "label": name}
        ax.errorbar(aside * mbit, of_strategy["efficiency"], yerr=of_strategy["spread_efficiency"], **look)


def local_steps_chart(*tables: pd.DataFrame) -> Figure:
    """Loss by step (left) and by what a node has sent (right), a line per number of steps between exchanges.

    A point is the loss after the last exchange, on text that no rank has seen.
    """
    runs = parts.distinct(tables)
    figure, grid = canvas.canvas(2, len(runs), height=0.9 + 3.1 * len(runs), squeeze=False, sharey=True)
    for axes, table in zip(grid, runs, strict=True):
        for color, (every, steps) in zip(canvas.SERIES, table.groupby("every", sort=False), strict=False):
            name = "every step (DDP)" if every == 1 else f"every {every} steps"
            axes[0].plot(steps["step"], steps["loss"], color=color, label=name)
            an_exchange = steps["link_mib"].max() / (len(steps) // every)
            exchanged = steps[steps["link_mib"] > an_exchange / 2]  # before the first, only messages of control
            axes[1].plot(exchanged["link_mib"], exchanged["loss"], color=color)
            end = steps.dropna(subset="final_loss")
            for ax, by in zip(axes, ("step", "link_mib"), strict=True):
                ax.plot(end[by], end["final_loss"], "o", color=color, mec=canvas.INK, ms=7)
        look = {"color": canvas.QUIET, "mec": canvas.INK, "ms": 7}
        axes[0].plot([], [], "o", label="after the last exchange, unseen text", **look)
        canvas.logarithmic(axes[1].xaxis)
        axes[0].set(title=f"{where(table)}: by step", xlabel="step", ylabel="loss, nats per token")
        axes[1].set(title="By bytes, from the first exchange on", xlabel="sent by a node, MiB (log)")
        for ax in axes:
            ax.grid(True)
    return parts.close(figure, *runs)


METHODS = {"flat": "one flat ring", "hierarchical": "two levels"}
_METHOD_LOOKS = {name: {"color": _COLORS[name], "label": label} for name, label in METHODS.items()}
# HSDP often lies on DDP's two levels: one is broad, the other dashed.
_FORMS: dict[str, Any] = {"hierarchical": {"lw": 4, "ms": 8, "alpha": 0.6}, "hsdp": {"ls": canvas.DASHES}}
_LOOKS = {name: {"color": color, "label": NAMES.get(name)} | _FORMS.get(name, {}) for name, color in _COLORS.items()}
_MODELS = (*canvas.SERIES[:7], "#3B1A8A", "#A030F0")
_ALMOST = 0.9  # an efficiency that many call good


def two_levels_chart(table: pd.DataFrame) -> Figure:
    """An all-reduce's time by size, one panel per number of nodes, flat and hierarchical; both axes are logarithmic."""
    figure, shown = parts.panel_each(table.groupby("nodes", sort=False), height=4.2, sharey=True)
    for ax, (nodes, rows) in shown:
        parts.lines(ax, rows, "whole_bytes", "call_ms", "method", _METHOD_LOOKS, lw=1.8)
        parts.knob_axis(ax, rows["whole_bytes"], "message, KiB to GiB", units.exact_size, most=5)
        ax.set_title(f"{nodes} nodes of {rows['per_node'].iloc[0]} GPUs")
        ax.grid(True)
    canvas.logarithmic(shown[0][0].yaxis)
    shown[0][0].set_ylabel("ms per all-reduce (log)")
    return parts.close(figure, table)


def projection_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Efficiency by number of GPUs, a panel without and one with simulated stragglers, a colour per strategy.

    `guess`: percent of efficiency that the reader expects of two levels on the most GPUs, a number or a Prediction.
    """
    from matplotlib.ticker import PercentFormatter

    panels = {"efficiency": "By two lines alone", "simulated_efficiency": "With simulated stragglers"}
    figure, shown = parts.panel_each(panels.items(), height=4.4, sharey=True)
    for ax, (column, title) in shown:
        parts.lines(ax, table, "gpus", column, "strategy", _LOOKS, marker="o", ms=5, lw=1.6)
        parts.knob_axis(ax, table["gpus"], "GPUs")
        ax.axhline(_ALMOST, color=canvas.HAIRLINE, lw=1.2, zorder=0)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set(title=title, ylim=(0, 1.05))
        ax.grid(True)
    shown[0][0].set_ylabel("efficiency, % of computing alone")
    parts.guess_mark(shown[1][0], table["gpus"].max(), guess, 1 / 100)
    return parts.close(figure, table, columns=6)


def published_chart(table: pd.DataFrame) -> Figure:
    """The least link that each printed speed needs, by GPUs, a line per model; a panel per kind of GPU.

    The dashed line is the link that the report names. Both axes are logarithmic.
    """
    figure, shown = parts.panel_each(table.groupby("gpu", sort=False), height=4.6, sharey=True)
    looks = canvas.looks(dict.fromkeys(table.sort_values("parameters")["model"]), _MODELS)
    for ax, (kind, rows) in shown:
        parts.lines(ax, rows, "gpus", "least_gbit_per_s", "model", looks, lw=1.3)
        named = rows["link_gbit_per_second"].dropna()
        if not named.empty:
            ax.axhline(named.iloc[0], color=canvas.THEORY, ls=canvas.DASHES, lw=1.3, label="the named link")
        parts.knob_axis(ax, rows["gpus"], "GPUs")
        ax.set_title(f"{kind}: {'link named' if not named.empty else 'no link named'}")
        ax.grid(True)
    canvas.logarithmic(shown[0][0].yaxis)
    shown[0][0].set_ylabel("least rate of a node's link, Gbit/s (log)")
    return parts.close(figure, table, columns=10)
