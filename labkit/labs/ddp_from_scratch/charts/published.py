"""A report's steps on one axis, with the room that repeats of one configuration leave."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.story import units


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
    return canvas.finish(figure, published.attrs["source"])
