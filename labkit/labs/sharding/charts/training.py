"""Scaling, and batches until they do not fit."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
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
