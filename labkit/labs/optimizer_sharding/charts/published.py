"""A report's saving and speed beside theory, measurement and the reader's prediction."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.charts import canvas
from labkit.labs.optimizer_sharding.charts.memory import KERNELS
from labkit.provenance import sources, where

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
