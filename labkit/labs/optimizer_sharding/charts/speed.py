"""Updates and steps as bars, and our update by the size of its buckets."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.optimizer_sharding.charts.memory import NAMES
from labkit.provenance import where

SETTINGS = {("adamw", "foreach"): "AdamW", ("adamw", "fused"): "AdamW, fused", ("momentum", "foreach"): "SGD, momentum"}
GAP = 1.4  # bars between two optimizers


def steps_chart(table: pd.DataFrame, guess=None) -> Figure:
    """Two panels, a bar a way and optimizer: the update (own elements, what sending adds), and the step around it.

    Strokes are the least that memory's and the links' rates allow, one after the other. `guess` (ms, a number or a
    Prediction) is a line in the first panel.
    """
    settings = list(dict.fromkeys(zip(table["optimizer"], table["kernel"], strict=True)))
    ways = list(dict.fromkeys(table["way"]))
    figure, (left, right) = canvas.canvas(2, height=1.6 + 0.24 * len(settings) * (len(ways) + GAP), sharey=True)
    at = [
        settings.index((row.optimizer, row.kernel)) * (len(ways) + GAP) + ways.index(row.way)
        for row in table.itertuples()
    ]
    local = table["local_ms"].clip(upper=table["update_ms"])
    left.barh(at, local, color=canvas.COMPUTE, height=0.74, label="update of own elements")
    left.barh(
        at,
        table["update_ms"] - local,
        left=local,
        color=canvas.COMMUNICATE,
        height=0.74,
        label="sending that nothing hides",
    )
    left.errorbar(table["update_ms"], at, xerr=table["spread_update_ms"], ls="", color=canvas.INK, capsize=2, lw=1)
    if table["least_local_ms"].notna().any():
        for name, sent, color in (("least to update", 0, "#F0E442"), ("least, sending after it", 1, canvas.INK)):
            left.scatter(
                table["least_local_ms"] + sent * table["least_sent_ms"],
                at,
                marker="|",
                s=110,
                zorder=3,
                color=color,
                lw=2.2,
                label=name,
            )
    value = getattr(guess, "value", guess)
    if value is not None:
        left.axvline(value, color=canvas.PREDICTED, ls=(0, (3, 2)), label="your prediction")
    rest = (table["step_ms"] - table["update_ms"]).clip(lower=0)
    right.barh(at, rest, color="#C8D8E4", height=0.74, label="forward, backward, average")
    right.barh(at, table["step_ms"] - rest, left=rest, color="#4C92C3", height=0.74, label="update and sending")
    right.errorbar(table["step_ms"], at, xerr=table["spread_step_ms"], ls="", color=canvas.INK, capsize=2, lw=1)
    for number, setting in enumerate(settings):
        for ax in (left, right):
            ax.text(
                0, number * (len(ways) + GAP) - 0.65, SETTINGS[setting], fontsize=9, style="italic", color=canvas.QUIET
            )
    left.set_yticks(at, [NAMES[way] for way in table["way"]], fontsize=9)
    left.set_ylim(max(at) + 0.6, -1.4)
    left.set(title=f"Update. {where(table)}", xlabel="update, ms")
    right.set(title="Whole step", xlabel="step, ms")
    for ax in (left, right):
        ax.grid(axis="x")
    (bars, names), (more_bars, more_names) = (ax.get_legend_handles_labels() for ax in (left, right))
    figure.legend([*bars, *more_bars], [*names, *more_names], loc="outside upper right", ncols=4, fontsize=9)
    return canvas.finish(figure, table.attrs["source"])


def buckets_chart(table: pd.DataFrame) -> Figure:
    """The update by the size of its buckets, and the part of it that sends nothing; between them, what sending adds."""
    figure, ax = canvas.canvas(height=3.6)
    rows = table.sort_values("bucket_mib")
    lines = (("update", canvas.INK, "update"), ("local", canvas.COMPUTE, "update of own elements, nothing sent"))
    for part, color, name in lines:
        ax.errorbar(
            rows["bucket_mib"],
            rows[f"{part}_ms"],
            yerr=rows[f"spread_{part}_ms"],
            color=color,
            marker="o",
            capsize=3,
            label=name,
        )
    ax.fill_between(
        rows["bucket_mib"],
        rows["local_ms"],
        rows["update_ms"],
        color=canvas.COMMUNICATE,
        alpha=0.45,
        lw=0,
        label="sending that nothing hides",
    )
    canvas.logarithmic(ax.xaxis)
    ax.set_xticks(rows["bucket_mib"], [f"{size:g}" for size in rows["bucket_mib"]])
    ax.set(title=where(table), xlabel="MiB in a bucket, at most", ylabel="update, ms", ylim=(0, None))
    ax.grid(axis="y")
    canvas.legend_above(ax, columns=3)
    return canvas.finish(figure, table.attrs["source"])
