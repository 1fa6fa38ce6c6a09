"""Training steps over two nodes as pictures: strategies, knobs, efficiency by the link's rate, local steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import fact, sources, where
from labkit.story import units
from lessons.beyond_the_node.charts.links import distinct, rate_colors, rate_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"alone": "alone", "ddp": "DDP", "fsdp": "FSDP", "hsdp": "HSDP"}
_COLORS = {"ddp": canvas.SERIES[0], "fsdp": canvas.SERIES[3], "hsdp": canvas.SERIES[1]}
_MARKS = {"ddp": "o", "fsdp": "s", "hsdp": "D"}


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without a turned knob: one micro-batch per step, buckets of torch's own size."""
    usual = table.loc[table["strategy"] == "ddp", "bucket_mb"]
    first = usual.iloc[0] if len(usual) else 0.0
    return table[(table["accumulation"] == 1) & table["bucket_mb"].isin([0.0, first])]


def strategies_chart(*tables: pd.DataFrame) -> Figure:
    """Each strategy's step at each rate, split into what a step alone takes and the rest; sent bytes beside the bar."""
    runs = distinct(tables)
    own = [plain(table) for table in runs]
    figure, axes = parts.panels(len(runs), rows=max(map(len, own)), row_height=0.36, sharex=True)
    for ax, table, rows in zip(axes, runs, own, strict=True):
        labels = [
            NAMES[row.strategy] if row.strategy == "alone" else f"{NAMES[row.strategy]}, {rate_name(row.link_mbit)}"
            for row in rows.itertuples()
        ]
        parts.rows(ax, labels)
        compute = rows[["compute_ms", "step_ms"]].min(axis=1)
        end = parts.bars(ax, compute.to_numpy(), color=canvas.COMPUTE, label="a step alone")
        rest = (rows["step_ms"] - compute).to_numpy()
        look = {
            "color": canvas.COMMUNICATE,
            "label": "what communication adds",
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
    colors, first = rate_colors(ddp), ddp["bucket_mb"].iloc[0]
    for rate, own in ddp.groupby("link_mbit", sort=False):
        look: dict[str, Any] = {"color": colors[int(str(rate))], "marker": "o", "capsize": 3}
        whole = own[own["bucket_mb"] == first].sort_values("accumulation")
        spread = whole["spread_efficiency"]
        left.errorbar(
            whole["accumulation"], whole["efficiency"], yerr=spread, label=rate_name(float(str(rate))), **look
        )
        single = own[own["accumulation"] == 1].sort_values("bucket_mb")
        right.errorbar(single["bucket_mb"], single["step_ms"], yerr=single["spread_step_ms"], **look)
    left.xaxis.set_major_locator(FixedLocator(sorted(set(ddp["accumulation"]))))
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set(ylim=(0, 1.1), title="Accumulation", xlabel="micro-batches per step", ylabel="efficiency")
    canvas.logarithmic(right.xaxis)
    right.set_ylim(bottom=0)
    right.set(title="Buckets", xlabel="bucket, MiB (log)", ylabel="ms per step")
    for ax in (left, right):
        ax.grid(True)
    canvas.shared_legend(figure, [left])
    return canvas.finish(figure, sources(table))


def efficiency_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Efficiency by the link's rate: measured points, and a band between nothing hidden and all hidden that can be.

    Takes `strategies` with the lines of the same link. `guess` is a predicted efficiency in percent, of DDP at the
    slowest link.
    """
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    runs = [table for table in distinct(tables) if (table["link_mbit"] > 0).any()]
    figure, axes = parts.panels(max(1, len(runs)), height=4.2, sharey=True)
    for ax, table in zip(axes, runs, strict=False):
        rows = plain(table)
        _bands(ax, rows[rows["link_mbit"] > 0])
        value = getattr(guess, "value", guess)
        if value is not None:
            slowest = rows.loc[rows["link_mbit"] > 0, "link_mbit"].min()
            ax.plot(
                [slowest], [value / 100], "D", color=canvas.PREDICTED, mec="white", label="your prediction", zorder=4
            )
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
    for aside, (strategy, color) in zip((0.94, 1.0, 1.06), _COLORS.items(), strict=True):
        own = rows[rows["strategy"] == strategy].sort_values("link_mbit")
        if own.empty:
            continue
        band = own["least_efficiency"].astype(float), own["most_efficiency"].astype(float)
        ax.fill_between(own["link_mbit"], *band, color=color, alpha=0.18, lw=0, label=f"{NAMES[strategy]}, predicted")
        look: dict[str, Any] = {"color": color, "marker": _MARKS[strategy], "ls": "", "capsize": 3}
        spread = own["spread_efficiency"]
        ax.errorbar(aside * own["link_mbit"], own["efficiency"], yerr=spread, label=NAMES[strategy], **look)


def local_steps_chart(*tables: pd.DataFrame) -> Figure:
    """Loss by step (left) and by what a node has sent (right), a line per number of steps between exchanges."""
    runs = distinct(tables)
    figure, grid = canvas.canvas(2, len(runs), height=0.9 + 3.1 * len(runs), squeeze=False, sharey=True)
    for axes, table in zip(grid, runs, strict=True):
        for color, (every, own) in zip(canvas.SERIES, table.groupby("every", sort=False), strict=False):
            name = "every step (DDP)" if every == 1 else f"every {every} steps"
            axes[0].plot(own["step"], own["loss"], color=color, label=name)
            axes[1].plot(own["link_mib"].clip(lower=own["link_mib"].max() / 1e3), own["loss"], color=color)
        canvas.logarithmic(axes[1].xaxis)
        axes[0].set(title=f"{where(table)}: by step", xlabel="step", ylabel="loss, nats per token")
        axes[1].set(title="By bytes", xlabel="sent by a node, MiB (log)")
        for ax in axes:
            ax.grid(True)
    canvas.shared_legend(figure, list(grid.flat))
    return canvas.finish(figure, sources(*runs))
