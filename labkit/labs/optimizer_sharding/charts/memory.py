"""What a rank holds around an update, as stacked bars with the allocator's peaks on them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.provenance import where

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
