"""Tables → figures: lines of two nodes, steps by strategy and rate, local steps, and theory of many more GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where
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
    """Return a colour and a marker per rate of the tables' links, the fastest first: the same for the same rates."""
    rates = {int(rate) for table in tables for rate in table["link_mbit"]}
    return canvas.looks(sorted(rates, reverse=True))


def lines_chart(*pairs: tuple[pd.DataFrame, pd.DataFrame], guess: Any = None) -> Figure:
    """Time of an all-reduce by size, inside a node and between nodes, with the fitted lines; a panel per run.

    Each pair is `messages` and its `two_lines`. `guess` is a predicted time in ms of 1 MiB at the slowest link.
    """
    runs = parts.distinct(pairs)
    figure, axes = parts.panels(len(runs), height=4.4, sharey=True)
    looks = rate_looks(*(lines for _, lines in runs))
    for ax, (table, lines) in zip(axes, runs, strict=True):
        for line in lines.itertuples():
            _line(ax, table, line, looks[line.link_mbit])
        parts.guess_mark(ax, 1, guess)
        canvas.logarithmic(ax.xaxis)
        canvas.logarithmic(ax.yaxis)
        ax.grid(True)
        ranks = " or ".join(map(str, sorted(set(lines["ranks"]))))
        ax.set(title=f"{where(table)}: all-reduce of {ranks} ranks", xlabel="tensor, MiB (log)")
    axes[0].set_ylabel("all-reduce, ms (log)")
    canvas.shared_legend(figure, axes, columns=3)
    return canvas.finish(figure, sources(*(table for table, _ in runs)))


def _line(ax: Axes, table: pd.DataFrame, line: Any, look: dict[str, Any]) -> None:
    """Draw a place's measured points with their spread, and its fitted line."""
    rows = table[(table["place"] == line.place) & (table["link_mbit"] == line.link_mbit)]
    inside = line.place == "inside"
    rate = "" if inside else f", {rate_name(line.link_mbit)}"
    look = look | {"color": canvas.INK, "marker": "p"} if inside else look
    mib = rows["kib"] / _BYTES_PER_KIB
    ax.errorbar(
        mib,
        rows["call_ms"],
        yerr=rows["spread_call_ms"],
        ls="",
        capsize=3,
        label=f"{_PLACES[line.place]}{rate}",
        **look,
    )
    sizes = np.geomspace(mib.min(), mib.max(), 50)
    sent_gb = ring_bytes(sizes * _BYTES_PER_KIB**2, line.ranks) / 1e9
    ax.plot(sizes, line.alpha_us / 1e3 + 1e3 * sent_gb / line.beta_gb_per_s, color=look["color"], lw=1)


_SHORT = {"alone": "alone", "ddp": "DDP", "fsdp": "FSDP", "hsdp": "HSDP"}
_STEP_COLORS = {"ddp": canvas.SERIES[0], "fsdp": canvas.SERIES[3], "hsdp": canvas.SERIES[1]}
_MARKS = {"ddp": "o", "fsdp": "s", "hsdp": "D"}


def strategies_chart(*tables: pd.DataFrame) -> Figure:
    """Each strategy's step at each rate, split into what a step alone takes and the rest; sent bytes beside the bar."""
    runs = parts.distinct(tables)
    plain_rows = [table[table["plain"]] for table in runs]
    figure, axes = parts.panels(len(runs), rows=max(map(len, plain_rows)), row_height=0.36, sharex=True)
    for ax, table, rows in zip(axes, runs, plain_rows, strict=True):
        labels = [
            _SHORT[row.strategy] if row.strategy == "alone" else f"{_SHORT[row.strategy]}, {rate_name(row.link_mbit)}"
            for row in rows.itertuples()
        ]
        parts.rows(ax, labels)
        compute = rows[["compute_ms", "step_ms"]].min(axis=1)
        end = parts.bars(ax, compute.to_numpy(), color=canvas.COMPUTE, label="a step alone")
        rest = (rows["step_ms"] - compute).to_numpy()
        look = {
            "color": canvas.COMMUNICATE,
            "label": "what the strategy adds",
            "spread": rows["spread_step_ms"].to_numpy(),
        }
        parts.bars(ax, rest, start=end, **look)
        for place, row in enumerate(rows.itertuples()):
            text = f"{units.number(row.link_mib, 2)} MiB" if row.link_mib > 0.01 else "0 MiB"
            parts.beside(ax, row.step_ms + row.spread_step_ms, place, text, fontsize=8)
        ax.set(title=f"{where(table)}, {fact(table, 'ranks')} ranks", xlabel="ms per step; beside: sent by a node")
        ax.margins(x=0.18)
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, sources(*runs))


def turning_chart(table: pd.DataFrame) -> Figure:
    """DDP's efficiency by micro-batches per step (left), and its step by bucket size (right), a line per rate."""
    from matplotlib.ticker import FixedLocator, PercentFormatter

    figure, (left, right) = parts.panels(2, height=3.9)
    ddp = table[table["strategy"] == "ddp"]
    looks, first = rate_looks(ddp), ddp["bucket_mb"].iloc[0]
    for rate, of_rate in ddp.groupby("link_mbit", sort=False):
        look: dict[str, Any] = looks[int(str(rate))] | {"capsize": 3}
        whole = of_rate[of_rate["bucket_mb"] == first].sort_values("accumulation")
        spread = whole["spread_efficiency"]
        left.errorbar(
            whole["accumulation"], whole["efficiency"], yerr=spread, label=rate_name(float(str(rate))), **look
        )
        single = of_rate[of_rate["accumulation"] == 1].sort_values("bucket_mb")
        right.errorbar(single["bucket_mb"], single["step_ms"], yerr=single["spread_step_ms"], **look)
    left.xaxis.set_major_locator(FixedLocator(sorted(set(ddp["accumulation"]))))
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set(ylim=(0, 1.1), title=f"{where(table)}: accumulation", xlabel="micro-batches per step", ylabel="efficiency")
    canvas.logarithmic(right.xaxis)
    right.set_ylim(bottom=0)
    right.set(title=f"{where(table)}: buckets", xlabel="bucket, MiB (log)", ylabel="ms per step")
    for ax in (left, right):
        ax.grid(True)
    canvas.shared_legend(figure, [left])
    return canvas.finish(figure, sources(table))


def efficiency_chart(*tables: pd.DataFrame) -> Figure:
    """Efficiency by the link's rate: measured points, and a band between nothing hidden and all hidden that can be.

    Takes `strategies` with the lines of the same link.
    """
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    runs = [table for table in parts.distinct(tables) if (table["link_mbit"] > 0).any()]
    figure, axes = parts.panels(max(1, len(runs)), height=4.2, sharey=True)
    for ax, table in zip(axes, runs, strict=False):
        rows = table[table["plain"]]
        _bands(ax, rows[rows["link_mbit"] > 0])
        rates = sorted(set(rows.loc[rows["link_mbit"] > 0, "link_mbit"]))
        canvas.logarithmic(ax.xaxis)
        ax.xaxis.set_major_locator(FixedLocator(rates))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set(
            title=f"{where(table)}, {fact(table, 'ranks')} ranks",
            xlabel="link between nodes, Mbit/s (log)",
            ylim=(0, 1.1),
        )
        ax.grid(True)
    axes[0].set_ylabel("efficiency, % of a step")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, sources(*runs) if runs else sources(*tables))


def _bands(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw each strategy's measured efficiency, a little aside of the others, and its predicted band."""
    for aside, (strategy, color) in zip((0.94, 1.0, 1.06), _STEP_COLORS.items(), strict=True):
        of_strategy = rows[rows["strategy"] == strategy].sort_values("link_mbit")
        if of_strategy.empty:
            continue
        band = of_strategy["least_efficiency"].astype(float), of_strategy["most_efficiency"].astype(float)
        ax.fill_between(
            of_strategy["link_mbit"], *band, color=color, alpha=0.18, lw=0, label=f"{_SHORT[strategy]}, predicted"
        )
        look: dict[str, Any] = {"color": color, "marker": _MARKS[strategy], "ls": "", "capsize": 3}
        spread = of_strategy["spread_efficiency"]
        ax.errorbar(
            aside * of_strategy["link_mbit"], of_strategy["efficiency"], yerr=spread, label=_SHORT[strategy], **look
        )


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
        axes[0].plot(
            [], [], "o", color=canvas.QUIET, mec=canvas.INK, ms=7, label="after the last exchange, unseen text"
        )
        canvas.logarithmic(axes[1].xaxis)
        axes[0].set(title=f"{where(table)}: by step", xlabel="step", ylabel="loss, nats per token")
        axes[1].set(title="By bytes, from the first exchange on", xlabel="sent by a node, MiB (log)")
        for ax in axes:
            ax.grid(True)
    canvas.shared_legend(figure, list(grid.flat))
    return canvas.finish(figure, sources(*runs))


METHODS = {"flat": "one flat ring", "hierarchical": "two levels"}
_COLORS = {
    "ddp": canvas.SERIES[0],
    "flat": canvas.SERIES[0],
    "hierarchical": canvas.SERIES[2],
    "tree": canvas.SERIES[4],
    "fsdp": canvas.SERIES[3],
    "hsdp": canvas.SERIES[1],
}
_MODELS = (*canvas.SERIES[:7], "#3B1A8A", "#A030F0")
_ALMOST = 0.9  # an efficiency that many call good


def two_levels_chart(table: pd.DataFrame) -> Figure:
    """An all-reduce's time by size, one panel per number of nodes, flat and hierarchical; both axes are logarithmic."""
    counts = list(dict.fromkeys(table["nodes"]))
    figure, axes = parts.panels(len(counts), height=4.2, sharey=True)
    for ax, nodes in zip(axes, counts, strict=True):
        rows = table[table["nodes"] == nodes]
        for method, line in rows.groupby("method", sort=False):
            ax.plot(line["whole_bytes"], line["call_ms"], color=_COLORS[method], lw=1.8, label=METHODS[method])
        _sizes(ax, rows["whole_bytes"])
        ax.set(xlabel="message, KiB to GiB (log)", title=f"{nodes} nodes of {rows['per_node'].iloc[0]} GPUs")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("ms per all-reduce (log)")
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, fact(table, "source"))


def _sizes(ax: Axes, sizes: pd.Series) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    shown = sorted(set(sizes))[:: max(1, len(set(sizes)) // 4)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    ax.set_xticks(shown, [_exact(size) for size in shown])


def _exact(size_bytes: float) -> str:
    """Return a power of two as short as it is exact: 64 KiB, not 64.0 KiB."""
    number, unit = units.size(size_bytes).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _percent(ax: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    ax.axhline(_ALMOST, color=canvas.HAIRLINE, lw=1.2, zorder=0)
    ax.set_ylim(0, 1.05)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("efficiency, % of computing alone")
    ax.grid(True)


def projection_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """Efficiency by number of GPUs, a panel without and one with simulated stragglers, a colour per strategy.

    `guess`: percent of efficiency that the reader expects of two levels on the most GPUs, a number or a Prediction.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, axes = parts.panels(2, height=4.4, sharey=True)
    panels = {"efficiency": "By two lines alone", "simulated_efficiency": "With simulated stragglers"}
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        for strategy, line in table.groupby("strategy", sort=False):
            # HSDP often lies on DDP's two levels: one is broad, the other dashed.
            form = {"hierarchical": {"lw": 4, "ms": 8, "alpha": 0.6}, "hsdp": {"ls": canvas.DASHES}}.get(strategy, {})
            look = {"color": _COLORS[strategy], "marker": "o", "ms": 5, "lw": 1.6, "label": NAMES[strategy]} | form
            ax.plot(line["gpus"], line[column], **look)
        counts = sorted(set(table["gpus"]))
        ax.set_xscale("log")
        ax.xaxis.set(major_locator=FixedLocator(counts), minor_locator=NullLocator())
        ax.set_xticks(counts, [units.count(count) for count in counts])
        _percent(ax)
        ax.set(xlabel="GPUs (log)", title=title)
    axes[1].set_ylabel("")
    parts.guess_mark(axes[1], table["gpus"].max(), guess, 1 / 100)
    canvas.shared_legend(figure, axes, columns=6)
    return canvas.finish(figure, fact(table, "source"))


def published_chart(table: pd.DataFrame) -> Figure:
    """The least link that each printed speed needs, by GPUs, a line per model; a panel per kind of GPU.

    The dashed line is the link that the report names. Both axes are logarithmic.
    """
    kinds = list(dict.fromkeys(table["gpu"]))
    figure, axes = parts.panels(len(kinds), height=4.6, sharey=True)
    models = list(dict.fromkeys(table.sort_values("parameters")["model"]))
    looks = canvas.looks(models, _MODELS)
    for ax, kind in zip(axes, kinds, strict=True):
        rows = table[table["gpu"] == kind]
        for model, line in rows.groupby("model", sort=False):
            ax.plot(line["gpus"], line["least_gbit_per_s"], lw=1.3, label=model, **looks[model])
        named = rows["link_gbit_per_second"].dropna()
        if not named.empty:
            ax.axhline(named.iloc[0], color=canvas.THEORY, ls=canvas.DASHES, lw=1.3, label="the named link")
        ax.set_xscale("log", base=2)
        counts = sorted(set(rows["gpus"]))
        ax.set_xticks(counts, [str(count) for count in counts])
        ax.set(xlabel="GPUs (log)", title=f"{kind}: {'link named' if not named.empty else 'no link named'}")
        ax.grid(True)
    canvas.logarithmic(axes[0].yaxis)
    axes[0].set_ylabel("least rate of a node's link, Gbit/s (log)")
    canvas.shared_legend(figure, axes, columns=10)
    return canvas.finish(figure, fact(table, "source"))
