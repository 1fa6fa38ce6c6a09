"""Tables → figures: bytes beside devices, who fits where, and what bounds the speed by batch."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas
from labkit.charts.ink import ink_like, ink_on
from labkit.charts.ledgers import held_bars
from labkit.charts.parts import BAR, bars, beside, close, guess_line, guessed, panel_each, rows, swatches
from labkit.provenance import fact
from labkit.story import units
from labkit.theory.sizes import GB, GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

_BOXES = ("#C3D5E3", "#DCE6EE")  # devices laid end to end, in turn


def parts_chart(parts: pd.DataFrame, labels: pd.DataFrame, guess=None) -> Figure:
    """A model's memory by kind above devices laid end to end, one lane per reading of their label; GB below, GiB above.

    `guess`: how many devices as labelled, a number or a Prediction.
    """
    figure, ax = canvas.canvas(height=3.6)
    rows(ax, ["the model", *labels["reading"]])
    ax.grid(False)
    end = held_bars(ax, [0], dict(zip(parts["kind"], parts["gb"], strict=True)))
    states = fact(labels, "total_bytes") / GB
    ax.axvline(states, color=canvas.THEORY, lw=1.2, ls=canvas.DASHES, label="without activations")
    for lane, row in enumerate(labels.itertuples(), 1):
        for place in range(row.devices):
            ax.barh(lane, row.gb, left=place * row.gb, color=_BOXES[place % 2], height=BAR, edgecolor="white", lw=0.5)
        beside(ax, row.devices * row.gb, lane, f"{row.devices} devices")
    if (value := guessed(guess)) is not None:
        end = max(end, value * labels["gb"].iloc[0])
        ax.plot(value * labels["gb"].iloc[0], 1, "D", color=canvas.PREDICTED, zorder=4, label="your prediction")
    ax.set_xlim(0, 1.14 * end)
    ax.set_xlabel("GB (10⁹ bytes)")
    ratio = GIB / GB
    above = ax.secondary_xaxis("top", functions=(_divided_by(ratio), _divided_by(1 / ratio)))
    above.set_xlabel("GiB (2³⁰ bytes)")
    ax.set_title(f"{units.number(fact(parts, 'parameters') / 1e9)} billion parameters, on H100s of 80 GB", loc="left")
    return close(figure, parts, columns=6)


def _divided_by(ratio: float) -> Callable[[Any], Any]:
    return lambda size: size / ratio


def devices_chart(table: pd.DataFrame, published: float | None = None, guess=None) -> Figure:
    """GB per device by the number of FSDP shards, one line per number of tokens, and the device's size in two units.

    A ring marks the fewest shards that fit. `published`: what a report printed; `guess`: the reader's, a number or a
    Prediction.
    """
    figure, ax = canvas.canvas(height=4.2)
    size = fact(table, "device_gb")
    for place, (tokens, group) in enumerate(table.groupby("tokens")):
        color, above = canvas.SERIES[place], place > 0
        name = "no activations" if not tokens else f"{units.count(tokens)} tokens per device"
        ax.plot(group["fsdp"], group["gb"], color=color, lw=1.6, label=name)
        for fewest in fact(table, "fewest")[tokens].values():
            at = group[group["fsdp"] == fewest]
            ax.plot(at["fsdp"], at["gb"], "o", ms=9, mfc="none", mec=color, mew=1.6)
            look = {"xytext": (2, 17 if above else -17), "ha": "center", "color": ink_like(color)}
            beside(ax, fewest, at["gb"].iloc[0], str(fewest), **look)
    for unit, at in (("GB", size), ("GiB", size * GIB / GB)):
        ax.axhline(at, color=canvas.THEORY, ls="-" if unit == "GB" else canvas.DASHES, lw=1.2, label=f"{size} {unit}")
    if published is not None:
        ax.axvline(published, color=canvas.PUBLISHED, ls=":", lw=1.6, label=f"published: more than {published:g}")
    guess_line(ax, guess)
    ax.set_xlim(table["fsdp"].min(), table["fsdp"].max())
    ax.set_ylim(bottom=0)
    ax.set(xlabel="devices to shard over (FSDP)", ylabel="GB per device")
    ax.set_title("Memory per device, parameters and states in float32")
    ax.grid(True)
    return close(figure, table, columns=3)


def fit_chart(table: pd.DataFrame) -> Figure:
    """The fewest GPUs that fit, one panel per strategy, models down and GPUs across; × where no number is enough."""
    from matplotlib.colors import LogNorm

    strategies, gpus = (list(dict.fromkeys(table[name])) for name in ("strategy", "gpu"))
    columns = min(2, len(strategies))
    lines = -(-len(strategies) // columns)
    figure, axes = canvas.canvas(columns, lines, height=0.3 + 4.0 * lines, squeeze=False, sharey=True, sharex=True)
    colors = LogNorm(1, max(2.0, table["fewest"].max()))
    for ax, strategy in zip(axes.flat, strategies, strict=False):
        _draw_fits(ax, table[table["strategy"] == strategy], gpus, colors)
        ax.set_title(f"{strategy}: fewest GPUs")
        ax.set(xlabel="GPU" if ax in axes[-1] else "", ylabel="model" if ax in axes[:, 0] else "")
        ax.set_xticklabels([name.replace(" ", "\n", 1) for name in gpus], rotation=0, fontsize=8)
        ax.tick_params(axis="y", rotation=0, labelsize=9)
    setting = f"{fact(table, 'precision')}, {units.count(fact(table, 'tokens'))} tokens per GPU"
    return canvas.finish(figure, f"{setting}, × fits on no number · {fact(table, 'source')}")


def _draw_fits(ax: Axes, table: pd.DataFrame, gpus: list[str], colors: LogNorm) -> None:
    import seaborn as sns

    cells = table.assign(mark=["×" if np.isnan(fewest) else units.count(fewest) for fewest in table["fewest"]])
    models = list(dict.fromkeys(table["model"]))
    counts, marks = (
        cells.pivot_table(index="model", columns="gpu", values=name, aggfunc="first", sort=False, dropna=False)
        for name in ("fewest", "mark")
    )
    counts, marks = (part.reindex(index=models, columns=gpus) for part in (counts, marks))
    text: Any = {"fontsize": 8}
    look: dict[str, Any] = {"norm": colors, "cmap": "Blues", "cbar": False, "linewidths": 0.5, "linecolor": "white"}
    look |= {"annot": marks.to_numpy(), "fmt": "", "annot_kws": text, "mask": np.zeros(counts.shape, bool)}
    sns.heatmap(counts.astype(float), ax=ax, **look)
    shades = np.asarray(ax.collections[0].get_facecolor()).reshape(*counts.shape, -1)
    for mark in ax.texts:
        column, row = mark.get_position()
        mark.set_color(ink_on(shades[int(row), int(column)]))
    ax.set_facecolor("#F2F2F2")
    for row, column in np.argwhere(counts.isna().to_numpy()):
        mark = marks.iloc[row, column]
        ax.text(column + 0.5, row + 0.5, mark, ha="center", va="center", color=canvas.QUIET, **text)


_BOUND = canvas.SERIES[3]


def batch_chart(table: pd.DataFrame, guess=None) -> Figure:
    """ms of one block's forward by batch: computing, gathering weights, exchanging activations, and these two in turn.

    The marked crossing is the least batch that is compute-bound. `guess`: tokens in all. Both axes are logarithmic.
    """
    figure, ax = canvas.canvas(height=4.4)
    tokens, send = table["tokens"], {"color": canvas.COMMUNICATE}
    ax.plot(tokens, table["math_ms"], color=canvas.COMPUTE, lw=2.2, label="compute")
    ax.plot(tokens, table["fsdp_ms"], lw=1.8, label="weights (FSDP)", **send)
    ax.plot(tokens, table["tensor_ms"], lw=1.8, ls=":", label="activations (TP)", **send)
    ax.plot(tokens, table["fsdp_ms"] + table["tensor_ms"], lw=1.2, ls=canvas.DASHES, label="both in turn", **send)
    bound = fact(table, "bound")
    if 0 < bound < inf:
        per_token = table["math_ms"].iloc[0] / table["tokens"].iloc[0]
        ax.plot(bound, bound * per_token, "s", ms=8, color=_BOUND, zorder=4)
        ax.axvline(bound, color=_BOUND, lw=1, ls=canvas.DASHES)
        look = {"xycoords": ax.get_xaxis_transform(), "va": "baseline", "color": ink_like(_BOUND)}
        beside(ax, bound, 0.03, f"{units.count(round(bound))} tokens", **look)
    guess_line(ax, guess)
    canvas.logarithmic(ax.xaxis)
    canvas.logarithmic(ax.yaxis)
    for place, side, name in ((0.01, "left", "← communication-bound"), (0.99, "right", "compute-bound →")):
        ax.text(place, 1.01, name, ha=side, va="bottom", fontsize=9, color=canvas.QUIET, transform=ax.transAxes)
    ax.set(xlabel="batch, tokens in all", ylabel="ms, one block's forward")
    ax.grid(True)
    ax.set_title("One block on the mesh", loc="center")
    return close(figure, table)


def splits_chart(table: pd.DataFrame) -> Figure:
    """The least compute-bound batch by the split of a node's GPUs, a panel per kind of GPU."""
    figure, shown = panel_each(table.groupby("gpu", sort=False), height=2.6, sharey=True)
    for ax, (gpu, of_gpu) in shown:
        lines = of_gpu.reset_index(drop=True)
        rows(ax, [f"{row.fsdp} × {row.tensor}" for row in lines.itertuples()])
        ax.grid(False)
        bars(ax, lines["tokens"].fillna(0), color=_BOUND)
        for row in lines.itertuples():
            enough = units.count(round(row.tokens)) if row.tokens > 0 else "any batch"
            never = np.isnan(row.tokens)
            beside(ax, 0 if never else row.tokens, row.Index, "no batch" if never else enough)
        ax.set_xlim(0, 1.3 * lines["tokens"].max())
        ax.set(xlabel="least batch, tokens in all")
        ax.set_title(f"8 × {gpu}")
    shown[0][0].set_ylabel("X × Y")
    return canvas.finish(figure, fact(table, "source"))


_LINKS = {"NVLink": canvas.SERIES[0], "PCIe": canvas.SERIES[3]}


def machines_chart(table: pd.DataFrame) -> Figure:
    """Tokens per device from which FSDP is compute-bound, one bar per device, coloured by its link."""
    figure, ax = canvas.canvas(height=3.9)
    names = [f"{row.device} (here)" if row.here else row.device for row in table.itertuples()]
    rows(ax, names)
    ax.grid(False)
    bars(ax, table["tokens"], color=[_LINKS[link] for link in table["link"]])
    for row in table.itertuples():
        rates = f"{units.number(row.tflops)} TFLOP/s over {units.rate(row.gb_per_s)}"
        beside(ax, row.tokens, row.Index, f"{units.number(row.tokens)}  ({rates})", fontsize=8.5)
    swatches(ax, _LINKS)
    ax.set_xlim(0, 1.5 * table["tokens"].max())
    ax.set(xlabel="tokens per device")
    ax.set_title("Least batch at which FSDP is compute-bound")
    return close(figure, table)
