"""Updates and steps as bars, and our update by the size of its buckets."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.optimizer_sharding.charts.memory import KERNELS, NAMES
from labkit.provenance import sources, where

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


GB_PER_MIB = 2**20 / 1e9


def report_chart(report: pd.DataFrame, saved: pd.DataFrame, times: pd.DataFrame, guess=None) -> Figure:
    """Above: what sharding saves of the peak, in GB; below: by how many ms a step becomes shorter.

    Theory, the run (`saved`, `times` as of tables.saving and tables.steps) and the report, each with its uncertainty;
    `guess` (GB, a number or a Prediction) in the upper panel.
    """
    said, own = report.iloc[0], saved[saved["way"] == "sharded"]
    above = [
        ("theory: states", said["states_gb"], 0, canvas.THEORY),
        ("theory: and temporaries", said["both_gb"], 0, canvas.THEORY),
    ]
    name = "recorded" if where(saved).startswith("Recorded") else "measured"
    color = canvas.RECORDED if name == "recorded" else canvas.MEASURED
    above += [(f"{name}: {KERNELS[row.kernel]}", row.measured * GB_PER_MIB, 0, color) for row in own.itertuples()]
    above.append(("published", said["saving_gb"], said["high_gb"] - said["saving_gb"], canvas.PUBLISHED))
    if (value := getattr(guess, "value", guess)) is not None:
        above.append(("your prediction", value, 0, canvas.PREDICTED))
    below = [
        (f"theory: {said_by}, {sent}", said[f"{kernel}_saved_ms"] - said[f"{sent}_ms"], 0, canvas.THEORY)
        for kernel, said_by in (("update", "many kernels"), ("fused", "one kernel"))
        for sent in ("gather", "broadcast")
    ]
    below += [(f"{name}: {KERNELS[kernel]}", *gained(times, kernel), color) for kernel in own["kernel"]]
    below.append(("published", said["faster_ms"], 1.0, canvas.PUBLISHED))
    figure, axes = canvas.canvas(
        rows=2, height=2.2 + 0.29 * (len(above) + len(below)), height_ratios=(len(above), len(below))
    )
    _bars(axes[0], above, "Peak memory saved", "GB (10⁹ bytes) less than unsharded")
    _bars(axes[1], below, "Time of a step saved", "ms a step less than unsharded")
    return canvas.finish(figure, sources(report, saved, times))


def gained(times: pd.DataFrame, kernel: str) -> tuple[float, float]:
    """Give by how many ms AdamW's step is shorter with our sharding, and the spread of that."""
    rows = times[(times["optimizer"] == "adamw") & (times["kernel"] == kernel)].set_index("way")
    if not {"unsharded", "sharded"} <= set(rows.index):
        return float("nan"), 0.0
    spread = rows["spread_step_ms"].reindex(["unsharded", "sharded"]).sum()
    return rows.loc["unsharded", "step_ms"] - rows.loc["sharded", "step_ms"], spread


def _bars(ax: Axes, rows: list[tuple], title: str, label: str) -> None:
    rows = [row for row in rows if pd.notna(row[1])]
    for place, (_, value, spread, color) in enumerate(rows):
        ax.barh(place, value, color=color, height=0.6, xerr=spread or None, capsize=3, ecolor=canvas.INK)
    ax.set(yticks=range(len(rows)), yticklabels=[name for name, *_ in rows], title=title, xlabel=label)
    ax.axvline(0, color=canvas.INK, lw=0.8)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x")
