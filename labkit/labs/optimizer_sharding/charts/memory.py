"""Who owns how much by rule, and what DDP, ours and ZeRO's stages hold and send."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.provenance import where

RULES = {"by number": canvas.SERIES[5], "whole parameters": canvas.SERIES[1], "by elements": canvas.SERIES[2]}
STAGES = {"ddp": "DDP", "ours": "ours", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
COLORS = dict(
    zip(STAGES, (canvas.SERIES[0], canvas.SERIES[5], canvas.SERIES[2], canvas.SERIES[3], canvas.SERIES[1]), strict=True)
)


def balance_chart(table: pd.DataFrame, ranks: tuple[int, ...] = (2, 4, 8)) -> Figure:
    """The fullest rank's elements over an equal part, by model and rule; a panel a number of ranks."""
    models = list(dict.fromkeys(table["model"]))
    figure, axes = canvas.canvas(len(ranks), height=1.5 + 0.55 * len(models), sharey=True, squeeze=False)
    for ax, count in zip(axes[0], ranks, strict=True):
        for number, (rule, color) in enumerate(RULES.items()):
            rows = table[(table["ranks"] == count) & (table["rule"] == rule)].set_index("model").loc[models]
            at = [place + 0.26 * (number - 1) for place in range(len(models))]
            ax.barh(at, 1 + rows["excess"], 0.24, color=color, label=rule)
        ax.axvline(1.05, color=canvas.INK, ls=(0, (2, 2)), lw=1, label="5 % more")
        ax.set(title=f"{count} ranks", xlabel="fullest rank, × equal parts", xlim=(0, None))
        ax.grid(axis="x")
    axes[0, 0].set_yticks(range(len(models)), models)
    axes[0, 0].set_ylim(len(models) - 0.5, -0.5)
    canvas.legend_above(axes[0, 0], columns=4)
    return canvas.finish(figure, table.attrs["source"])


def stages_chart(held: pd.DataFrame, sent: pd.DataFrame, measured: pd.DataFrame | None = None) -> Figure:
    """Left what a rank holds by the number of ranks, a line a stage; right what it sends a step, in parameters' bytes.

    `measured`: a memory table; what its ranks' tensors hold after the update is marked.
    """
    figure, (left, right) = canvas.canvas(2, height=3.9, width_ratios=(3, 2))
    for name, said in STAGES.items():
        rows = held[held["stage"] == name]
        dashed = (0, (4, 3)) if name == "zero1" else "-"  # as high as ours
        left.plot(rows["ranks"], rows["held_gib"], color=COLORS[name], ls=dashed, marker="o", ms=4, label=said)
    if measured is not None:
        rows = measured[(measured["moment"] == "after update") & (measured["step"] == 1)].drop_duplicates("way")
        mib = rows["parameters"] + rows["gradients"] + rows["counted_states"]
        marked = mib[rows["way"].isin(("unsharded", "sharded"))] / 1024
        left.scatter(
            [measured.attrs["ranks"]] * len(marked),
            marked,
            marker="D",
            s=44,
            color=canvas.INK,
            zorder=4,
            label="counted in tensors",
        )
    canvas.logarithmic(left.xaxis)
    left.set_xticks(sorted(set(held["ranks"])), [str(count) for count in sorted(set(held["ranks"]))])
    left.set(title="Parameters, gradients and states", xlabel="ranks", ylabel="GiB on a rank", ylim=(0, None))
    left.grid(axis="y")
    right.barh(
        [STAGES[name] for name in sent["stage"]],
        sent["volume"],
        color=[COLORS[name] for name in sent["stage"]],
        height=0.6,
    )
    right.set(title="Sent through a link in a step", xlabel="parameters' bytes, × (N − 1)/N")
    right.invert_yaxis()
    right.grid(axis="x")
    canvas.legend_above(left, columns=6)
    return canvas.finish(figure, held.attrs["source"])


NAMES = {
    "unsharded": "unsharded",
    "zero_redundancy": "torch's ZeRO",
    "zero_buckets": "torch's, in buckets",
    "sharded": "ours",
}
ITEMS = {
    "parameters": "#0072B2",
    "gradients": "#D55E00",
    "states": "#009E73",
    "activations": "#C8D8E4",
    "temporary": "#F0E442",
}
MOMENTS = {"built": "built", "before update": "up to the update", "after update": "in the update"}
KERNELS = {"foreach": "many kernels (foreach)", "fused": "one kernel (fused)"}
GAP = 1.7  # bars between two moments


def memory_chart(table: pd.DataFrame, guess=None) -> Figure:
    """Stacked bars by item of the second step's three moments, a bar a way; diamonds where the allocator saw peaks.

    A panel a kernel. `guess` (GiB, a number or a Prediction) is a line in the first panel.
    """
    kernels = list(dict.fromkeys(table["kernel"]))
    shown = table[(table["step"] == table["step"].max()) | (table["moment"] == "built")]
    ways = list(dict.fromkeys(shown["way"]))
    figure, axes = canvas.canvas(len(kernels), height=1.7 + 0.25 * 3 * (len(ways) + GAP), sharey=True, squeeze=False)
    scale, unit = (1024, "GiB") if shown["predicted"].max() > 2048 else (1, "MiB")
    places = {
        (moment, way): number * (len(ways) + GAP) + row
        for number, moment in enumerate(MOMENTS)
        for row, way in enumerate(ways)
    }
    for ax, kernel in zip(axes[0], kernels, strict=True):
        rows = shown[shown["kernel"] == kernel]
        at = [places[moment, way] for moment, way in zip(rows["moment"], rows["way"], strict=True)]
        left = 0.0
        for item, color in ITEMS.items():
            size = rows[item].to_numpy() / scale
            ax.barh(at, size, left=left, color=color, height=0.74, label=item)
            left = left + size
        if rows["peak"].notna().any():
            ax.scatter(rows["peak"] / scale, at, marker="D", s=26, color=canvas.INK, zorder=3, label="measured peak")
        for number, said in enumerate(MOMENTS.values()):
            ax.text(0, number * (len(ways) + GAP) - 0.75, said, fontsize=9, style="italic", color=canvas.QUIET)
        ax.set(title=f"{where(table)}: {KERNELS[kernel]}", xlabel=f"most memory on a rank, {unit}")
        ax.grid(axis="x")
    axes[0, 0].set_yticks(list(places.values()), [NAMES[way] for _, way in places], fontsize=9)
    axes[0, 0].set_ylim(max(places.values()) + 0.6, -1.6)
    value = getattr(guess, "value", guess)
    if value is not None:
        axes[0, 0].axvline(
            value * (1 if unit == "GiB" else 1024), color=canvas.PREDICTED, ls=(0, (3, 2)), label="your prediction"
        )
    canvas.legend_above(axes[0, 0], columns=7)
    return canvas.finish(figure, table.attrs["source"])
