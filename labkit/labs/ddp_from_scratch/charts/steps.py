"""What a step takes by implementation, beside one that sends nothing, torch's, and what a report prints."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.charts.profile import breakdown_chart as breakdown_chart
from labkit.charts.profile import trace_chart as trace_chart
from labkit.provenance import sources, where
from labkit.story import units

NAMES = {
    "none": "nothing sent",
    "naive": "naive",
    "flat": "flat",
    "overlapped": "overlapped",
    "bucketed": "bucketed",
    "ddp": "torch's DDP",
}
PRINTED = {
    "naive": "naive",
    "flat": "flat",
    "overlap_individual": "overlapped",
    "individual": "overlapped",
    "individual (bucket experiment)": "overlapped",
    "bucketed": "bucketed",
}


def steps_chart(*tables: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """A bar a strategy: what a step takes that sends nothing, and what sending adds; a line at torch's DDP.

    A panel a run; what a report prints, which had another batch, stands in a panel of its own.
    """
    panels = len(tables) + (published is not None)
    figure, axes = canvas.canvas(panels, height=1.7 + 0.42 * max(map(len, tables)), squeeze=False)
    for ax, table in zip(axes[0], tables, strict=False):
        places, exposed = range(len(table)), table["exposed_ms"].fillna(0.0).clip(lower=0.0)
        ax.barh(places, table["step_ms"] - exposed, color=canvas.COMPUTE, height=0.62, label="compute")
        ax.barh(
            places,
            exposed,
            left=table["step_ms"] - exposed,
            color=canvas.COMMUNICATE,
            height=0.62,
            xerr=table["spread_step_ms"],
            ecolor=canvas.INK,
            capsize=3,
            label="exposed communication",
        )
        for at in table.loc[table["strategy"] == "ddp", "step_ms"].dropna():
            ax.axvline(at, color=canvas.INK, lw=1.2, ls=(0, (4, 2)), label="torch's DDP")
        most = (table["step_ms"] + table["spread_step_ms"].fillna(0.0)).max()
        for place, row in zip(places, table.itertuples(), strict=True):
            said = units.seconds(row.step_ms / 1e3) if row.status == "ok" else row.status
            ax.text(1.06 * most, place, said, va="center", fontsize=9)
        ax.set(yticks=places, yticklabels=[_name(row) for row in table.itertuples()], title=where(table))
        _framed(ax, len(table), (1.2 + 0.16 * panels) * most)
    if published is not None:
        _printed(axes[0, -1], tables[-1], published)
    canvas.legend_above(axes[0, 0])
    return canvas.finish(figure, sources(*tables, published))


def _name(row) -> str:
    """Return a strategy's name, with the bucket's size where that is ours to choose."""
    return NAMES[row.strategy] + (f",\n{row.bucket_mb:g} MB" if row.strategy == "bucketed" else "")


def _framed(ax: Axes, rows: int, end: float) -> None:
    ax.set(xlabel="ms a step", xlim=(0, end), ylim=(rows - 0.5, -0.5))
    ax.grid(axis="x")


def _printed(ax: Axes, table: pd.DataFrame, published: pd.DataFrame) -> None:
    """Mark what a report prints for each strategy of the table, its bucket sizes alike."""
    places = {strategy: place for place, strategy in enumerate(table["strategy"])}
    at = published["implementation"].map(PRINTED).map(places)
    steps_ms = 1e3 * pd.to_numeric(published["step_seconds"], errors="coerce")
    shown = at.notna() & steps_ms.notna()
    ax.plot(steps_ms[shown], at[shown], "^", color=canvas.PUBLISHED, mec="white", ms=9)
    ax.set(yticks=range(len(table)), yticklabels=[], title="Published, 2 × H100")
    _framed(ax, len(table), 1.15 * steps_ms[shown].max())


def published_chart(published: pd.DataFrame, repeats: pd.DataFrame) -> Figure:
    """A mark a printed step; the band is what one configuration, printed several times, covers."""
    steps_ms = 1e3 * pd.to_numeric(published["step_seconds"], errors="coerce")
    sizes = published["bucket_mb"].map(lambda mb: f", {mb:g} MB", na_action="ignore").fillna("")
    names = published["implementation"].str.replace("_", " ") + sizes
    figure, ax = canvas.canvas(height=1.4 + 0.34 * len(published))
    least, most = 1e3 * repeats["step_s"].min(), 1e3 * repeats["step_s"].max()
    ax.axvspan(least, most, color=canvas.HAIRLINE, label=f"one configuration, printed {len(repeats)} times")
    again = published["implementation"].isin(repeats["printed"])
    places = pd.Series(range(len(published)), index=published.index)
    for which, color, name in ((~again, canvas.PUBLISHED, "published"), (again, canvas.INK, "the same, again")):
        ax.plot(steps_ms[which], places[which], "^", ms=8, color=color, label=name)
    for place, step_ms, text in zip(places, steps_ms, published["step_seconds"], strict=True):
        at = steps_ms.min() if pd.isna(step_ms) else step_ms
        said = text if pd.isna(step_ms) else units.number(step_ms)
        ax.annotate(said, (at, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set(yticks=places, yticklabels=names, xlabel="ms a step", title="As printed")
    ax.set_ylim(len(published) - 0.5, -0.5)
    ax.margins(x=0.12)
    ax.grid(axis="x")
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(published))
