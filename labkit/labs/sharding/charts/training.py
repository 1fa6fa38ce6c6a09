"""Scaling, and batches until they do not fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

from labkit.charts import canvas
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import trace_chart as trace_chart
from labkit.charts.waterfall import waterfall_chart as waterfall_chart
from labkit.provenance import sources, where
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS

LOADS = {"large": canvas.SERIES[0], "shared out": canvas.SERIES[4]}


def scaling_chart(*tables: pd.DataFrame) -> Figure:
    """Efficiency beside one GPU, a bar a strategy and number of GPUs, a colour a load; a panel a run."""
    figure, axes = canvas.canvas(len(tables), height=4.0, squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        table = table[table["strategy"] != "single"]
        settings = list(dict.fromkeys(zip(table["ranks"], table["strategy"], strict=True)))
        for load, color in LOADS.items():
            rows = table[table["load"] == load].set_index(["ranks", "strategy"]).reindex(settings)
            at = [place + (-0.2 if load == "large" else 0.2) for place in range(len(settings))]
            spread = rows["efficiency"] * rows["spread_tokens_per_s"] / rows["tokens_per_s"]
            ax.barh(
                at,
                rows["efficiency"],
                0.38,
                color=color,
                xerr=spread,
                capsize=2,
                ecolor=canvas.INK,
                label=f"{load} batch" if load == "large" else "the report's batch, shared out",
            )
            for place, rate in zip(at, rows["tokens_per_s"], strict=True):
                if pd.notna(rate):
                    ax.text(0.02, place, f"{units.number(rate)} tokens/s", va="center", fontsize=7.5, color="white")
        ax.axvline(0.95, color=canvas.PREDICTED, ls=(0, (4, 2)), lw=1.3, label="target 0.95")
        ax.set(
            yticks=range(len(settings)),
            yticklabels=[f"{STRATEGY_LABELS[name]}\n{count} ranks" for count, name in settings],
        )
        ax.set(title=where(table), xlabel="rate a GPU, times that of one GPU alone", xlim=(0, 1.1))
        ax.tick_params(axis="y", labelsize=8.5)
        ax.set_ylim(len(settings) - 0.5, -0.5)
        ax.grid(axis="x")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(*tables))


def batches_chart(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Tokens a second, and memory beside its ledger, against the micro-batch; a cross where it did not fit."""
    figure, axes = canvas.canvas(2, height=3.8)
    fits = table[table["tokens_per_s"].notna()]
    axes[0].errorbar(
        fits["micro_batch"],
        fits["tokens_per_s"],
        yerr=fits["spread_tokens_per_s"],
        marker="o",
        capsize=3,
        color=canvas.MEASURED,
        label="measured",
    )
    scale, unit = (1024, "GiB") if table["predicted_mib"].max() > 4096 else (1, "MiB")
    axes[1].plot(table["micro_batch"], table["predicted_mib"] / scale, color=canvas.THEORY, marker="|", label="ledger")
    axes[1].plot(table["micro_batch"], table["peak_mib"] / scale, "o", color=canvas.MEASURED)
    for row in table[table["tokens_per_s"].isna()].itertuples():
        axes[1].plot([row.micro_batch], [row.predicted_mib / scale], "X", ms=10, color=canvas.SERIES[5])
        axes[1].annotate(
            row.status,
            (row.micro_batch, row.predicted_mib / scale),
            ha="right",
            va="center",
            xytext=(-8, 0),
            textcoords="offset points",
            fontsize=9,
        )
    if published is not None:
        known = published[published["tokens_per_second"] != "OOM"].astype({"tokens_per_second": float})
        axes[0].plot(known["batch"], known["tokens_per_second"], "^", color=canvas.PUBLISHED, label="published (H100)")
    for ax, title, label in ((axes[0], "Rate", "tokens/second"), (axes[1], "Peak memory", f"{unit} on one GPU")):
        ax.set_xscale("log", base=2)
        ax.set(
            title=f"{title}: {where(table)}",
            xlabel="sequences at once (log)",
            ylabel=label,
            xticks=table["micro_batch"],
            xticklabels=table["micro_batch"],
        )
        ax.minorticks_off()
        ax.yaxis.set_major_formatter(lambda value, _: units.number(value, 6).partition(".")[0] if value else "0")
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
        ax.grid(axis="y")
    axes[0].plot([], [], color=canvas.THEORY, marker="|", label="ledger")
    canvas.legend_above(axes[0])
    return canvas.finish(figure, sources(table, published))


COLLECTIVES = {"all-reduce": canvas.SERIES[0], "all-gather": canvas.SERIES[1], "reduce-scatter": canvas.SERIES[2]}
STRATEGIES = {
    "ddp": canvas.SERIES[0],
    "fsdp_grad": canvas.SERIES[1],
    "fsdp_full": canvas.SERIES[2],
    "fsdp_root": canvas.SERIES[3],
}
PUBLISHED = {"ddp_speedup": ("^", "report, DDP"), "fsdp_speedup": ("v", "report, FSDP")}


def links_chart(table: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """What a collective takes by the bytes that a ring sends through a link, and its line; a panel a number of ranks.

    A dotted line stands at α·β: left of it latency takes longer than transfer, right of it shorter.
    """
    counts = sorted(set(table["ranks"]))
    figure, axes = canvas.canvas(len(counts), height=4.4, squeeze=False, sharey=True)
    for ax, count in zip(axes[0], counts, strict=True):
        rows = table[(table["ranks"] == count) & table["median_us"].notna()]
        for collective, own in rows.groupby("collective", sort=False):
            ax.errorbar(
                own["link_bytes"] / units.MIB,
                own["median_us"],
                yerr=own["spread_us"],
                fmt="o",
                ms=5,
                capsize=2,
                color=COLLECTIVES[collective],
                label=collective,
            )
        for line in fits[fits["ranks"] == count].itertuples():
            color, own = COLLECTIVES[line.collective], rows[rows["collective"] == line.collective]["link_bytes"]
            sizes = np.geomspace(own.min(), own.max(), 60)
            ax.plot(sizes / units.MIB, line.alpha_us + sizes / line.beta_gb_per_s / 1e3, color=color, lw=1.3)
            if np.isfinite(line.knee_mib) and line.knee_mib > 0:
                ax.axvline(line.knee_mib, color=color, ls=":", lw=1.3)
        canvas.logarithmic(ax.xaxis)
        canvas.logarithmic(ax.yaxis)
        for place, side, name in ((0.02, "left", "← latency"), (0.98, "right", "bandwidth →")):
            ax.text(place, 1.02, name, ha=side, va="bottom", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)
        ax.set_title(f"{count} ranks", loc="center")
        ax.set(xlabel="MiB that a rank sends")
        ax.grid(True)
    axes[0, 0].set(ylabel="µs a call")
    axes[0, 0].plot([], [], color=canvas.QUIET, lw=1.3, label="fitted line")
    axes[0, 0].plot([], [], color=canvas.QUIET, ls=":", lw=1.3, label="α·β")
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, table.attrs["source"])


def projection_chart(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """How much of a single GPU's speed each GPU keeps, by their number: lines projected, dots measured.

    Dashed is what would be if α did not grow with the ring. Triangles are published speed-ups over their number of
    GPUs; the dotted line is where a node ends.
    """
    figure, ax = canvas.canvas(height=4.2)
    for place, (strategy, rows) in enumerate(table.groupby("strategy", sort=False)):
        color, dodge = STRATEGIES[strategy], 2 ** (0.06 * (place - 1.5))  # so that no dot hides another
        ax.plot(rows["gpus"], rows["efficiency"], color=color, lw=1.5, label=STRATEGY_LABELS[strategy])
        ax.plot(rows["gpus"], rows["efficiency_at_fixed_alpha"], color=color, lw=1, ls=(0, (4, 2)))
        ax.scatter(dodge * rows["gpus"], rows["efficiency"] / (1 + rows["error"]), color=color, s=36, zorder=3)
    ax.plot([], [], color=canvas.QUIET, lw=1, ls=(0, (4, 2)), label="α fixed")
    if table["error"].notna().any():
        ax.scatter([], [], color=canvas.QUIET, s=36, label="measured")
    if published is not None:
        for column, (marker, name) in PUBLISHED.items():
            ax.scatter(
                published["gpus"],
                published[column] / published["gpus"],
                color=canvas.PUBLISHED,
                marker=marker,
                s=36,
                label=name,
                zorder=2,
            )
    gpus, node = sorted(set(table["gpus"])), table.attrs["per_node"]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(gpus), minor_locator=NullLocator(), major_formatter=ScalarFormatter())
    if node < max(gpus):
        # Between the full node and twice as many GPUs, so that it goes through no dot.
        ax.axvline(node * 2**0.5, color=canvas.QUIET, ls=":", lw=1.2)
        for side, name in (("right", "one node "), ("left", " several nodes")):
            ax.text(
                node * 2**0.5, 0.03, name, ha=side, fontsize=9, color=canvas.QUIET, transform=ax.get_xaxis_transform()
            )
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set(xlabel="GPUs, one micro-batch each", ylabel="% of a single GPU's speed, a GPU")
    ax.set_title(f"Micro-batch {table.attrs['micro_batch']}: lines projected from links and one GPU")
    ax.grid(axis="y")
    canvas.legend_above(ax, columns=4)
    sources = [frame.attrs["source"] for frame in (table, published) if frame is not None]
    return canvas.finish(figure, " · ".join(dict.fromkeys(sources)))
