"""Bytes by kind beside devices laid end to end, memory a device over their number, and who fits where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.provenance import fact
from labkit.story import units

COLORS = {  # as in the ledgers of labs 04 and 05
    "parameters": "#999999",
    "gradients": "#D55E00",
    "optimizer": "#009E73",
    "activations": "#56B4E9",
}
DASHES = (0, (4, 2))


def parts_chart(parts: pd.DataFrame, labels: pd.DataFrame, guess=None) -> Figure:
    """A model's memory by kind above devices laid end to end, a lane a reading of their label; GB below, GiB above.

    `guess`: how many devices as labelled, a number or a Prediction.
    """
    figure, ax = canvas.canvas(height=3.6)
    left = 0.0
    for row in parts.itertuples():
        ax.barh(0, row.gb, left=left, color=COLORS[row.kind], height=0.62, label=row.kind)
        left += row.gb
    states = fact(labels, "total_bytes") / units.GB
    ax.axvline(states, color=canvas.THEORY, lw=1.2, ls=DASHES, label="without activations")
    for lane, row in enumerate(labels.itertuples(), 1):
        for place in range(row.devices):
            shade = "#DCE6EE" if place % 2 else "#C3D5E3"
            ax.barh(lane, row.gb, left=place * row.gb, color=shade, height=0.62, edgecolor="white", lw=0.5)
        ax.text(row.devices * row.gb + 25, lane, f"{row.devices} devices", va="center", fontsize=9)
    ax.set_yticks(range(len(labels) + 1), ["the model", *labels["reading"]])
    if (value := getattr(guess, "value", guess)) is not None:
        left = max(left, value * labels["gb"].iloc[0])
        ax.plot(value * labels["gb"].iloc[0], 1, "D", color=canvas.PREDICTED, zorder=4, label="your prediction")
    ax.set_xlim(0, 1.14 * left)
    ax.invert_yaxis()
    ax.set_xlabel("GB (10⁹ bytes)")
    ratio = units.GIB / units.GB
    above = ax.secondary_xaxis("top", functions=(lambda gb: gb / ratio, lambda gib: gib * ratio))
    above.set_xlabel("GiB (2³⁰ bytes)")
    ax.set_title(f"{units.number(fact(parts, 'parameters') / 1e9)} billion parameters, on H100s of 80 GB", loc="left")
    canvas.legend_above(ax, columns=6)
    return canvas.finish(figure, fact(parts, "source"))


def devices_chart(table: pd.DataFrame, published: float | None = None, guess=None) -> Figure:
    """GB a device by the number of FSDP shards, a line a number of tokens on each, and a device's size by two units.

    A ring marks the fewest shards that fit. `published`: what a report printed; `guess`: the reader's, a number or a
    Prediction.
    """
    figure, ax = canvas.canvas(height=4.2)
    size = fact(table, "device_gb")
    for place, (tokens, rows) in enumerate(table.groupby("tokens")):
        color, above = canvas.SERIES[place], place > 0
        name = "no activations" if not tokens else f"{units.count(tokens)} tokens on each"
        ax.plot(rows["fsdp"], rows["gb"], color=color, lw=1.6, label=name)
        for fewest in fact(table, "fewest")[tokens].values():
            at = rows[rows["fsdp"] == fewest]
            ax.plot(at["fsdp"], at["gb"], "o", ms=9, mfc="none", mec=color, mew=1.6)
            ax.annotate(
                str(fewest),
                (fewest, at["gb"].iloc[0]),
                xytext=(2, 17 if above else -17),
                va="center",
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=color,
            )
    for unit, at in (("GB", size), ("GiB", size * units.GIB / units.GB)):
        ax.axhline(at, color=canvas.THEORY, ls="-" if unit == "GB" else DASHES, lw=1.2, label=f"{size} {unit}")
    if published is not None:
        ax.axvline(published, color=canvas.PUBLISHED, ls=":", lw=1.6, label=f"published: more than {published:g}")
    if (value := getattr(guess, "value", guess)) is not None:
        ax.axvline(value, color=canvas.PREDICTED, lw=1.4, label="your prediction")
    ax.set_xlim(table["fsdp"].min(), table["fsdp"].max())
    ax.set_ylim(bottom=0)
    ax.set(xlabel="devices to shard over (FSDP)", ylabel="GB a device")
    ax.set_title("Memory of a device, parameters and states in float32")
    ax.grid(True)
    canvas.legend_above(ax, columns=3)
    return canvas.finish(figure, fact(table, "source"))


def fit_chart(table: pd.DataFrame) -> Figure:
    """The fewest GPUs that fit, a panel a strategy, models down and GPUs across; × where no number is enough."""
    strategies, gpus = (list(dict.fromkeys(table[name])) for name in ("strategy", "gpu"))
    figure, axes = canvas.canvas(
        2, -(-len(strategies) // 2), width=9.6, height=8.2, squeeze=False, sharey=True, sharex=True
    )
    most = table["fewest"].max()
    for ax, strategy in zip(axes.flat, strategies, strict=False):
        own = table[table["strategy"] == strategy]
        counts, said = (
            own.assign(mark=own.apply(_mark, axis=1)).pivot_table(
                index="model", columns="gpu", values=name, aggfunc="first", sort=False, dropna=False
            )
            for name in ("fewest", "mark")
        )
        counts, said = (part.reindex(index=dict.fromkeys(own["model"]), columns=gpus) for part in (counts, said))
        scale = LogNorm(1, max(2.0, most))
        sns.heatmap(
            counts.astype(float),
            ax=ax,
            norm=scale,
            cmap="Blues",
            cbar=False,
            annot=said.to_numpy(),
            fmt="",
            annot_kws={"fontsize": 8},
            linewidths=0.5,
            linecolor="white",
            mask=np.zeros(counts.shape, bool),
        )
        ax.set_facecolor("#F2F2F2")
        for row, column in np.argwhere(counts.isna().to_numpy()):
            ax.text(
                column + 0.5,
                row + 0.5,
                said.iloc[row, column],
                ha="center",
                va="center",
                fontsize=8,
                color=canvas.QUIET,
            )
        ax.set_title(f"{strategy}: fewest GPUs")
        ax.set(xlabel="GPU" if ax in axes[-1] else "", ylabel="model" if ax in axes[:, 0] else "")
        ax.set_xticklabels([name.replace(" ", "\n", 1) for name in gpus], rotation=0, fontsize=8)
        ax.tick_params(axis="y", rotation=0, labelsize=9)
    return canvas.finish(
        figure,
        f"{fact(table, 'precision')}, {units.count(fact(table, 'tokens'))} tokens a GPU, "
        f"× fits on no number, – no bfloat16 · {fact(table, 'source')}",
    )


def _mark(row: pd.Series) -> str:
    if row["status"] == "ok":
        return units.count(row["fewest"])
    return "–" if row["status"] == "no bfloat16" else "×"
