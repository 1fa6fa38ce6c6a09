"""Rows of forwards by depth, width and size → host time beside GPU time, and the model of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run
from labkit.tables.rows import entries
from lessons.benchmarking.theory import line

if TYPE_CHECKING:
    from labkit.engine.run import Run

_POINT = ["axis", "model", "hidden", "layers"]


def launches(run: Run) -> pd.DataFrame:
    """Return one row per forward: kernels, its eager time, the host's part and the GPU's, and what the model predicts.

    Columns: axis, model, hidden, layers, kernels, eager_ms, spread_ms, fastest_ms (the fastest iteration), enqueue_us
    (the least time per kernel in which the host launched all), gpu_ms (the same kernels from a CUDA graph; NaN without
    a GPU), gpu_us per kernel, busy_ms, host_ms (kernels × launch_us), predicted_ms (the longer of host_ms and gpu_ms),
    error (predicted over fastest, less one), launch_bound.

    A host that is disturbed only adds time, so the model is of the fastest iterations; its one number, the fact
    `launch_us`, is the median of enqueue_us over the sweep of layers: no size takes part. Further facts:
    `reference_low_us` and `reference_high_us`, the first and last decile of what a launch of the same small forward
    took throughout; `knee_width`, from which on the GPU takes longer than the launches; `layer_kernels`,
    `layer_host_us` and `layer_gpu_us` of one more layer.
    """
    rows = entries(run, "launch").assign(model=lambda found: found["model"].fillna(""))
    timed = rows[~rows["warm_up"].astype(bool)]
    graph = timed[timed["mode"] == "graph"].groupby(_POINT, sort=False)["ms"].median()
    eager = timed[timed["mode"] == "eager"]
    own = eager.groupby(_POINT, sort=False)
    counts = entries(run, "kernels").assign(model=lambda found: found["model"].fillna(""))
    table = counts.groupby(_POINT, sort=False)[["kernels", "busy_ms"]].median()
    half = (own["ms"].quantile(0.75) - own["ms"].quantile(0.25)) / 2
    table = table.assign(eager_ms=own["ms"].median(), spread_ms=half, fastest_ms=own["ms"].min())
    table["enqueue_us"] = 1e3 * own["enqueue_ms"].min() / table["kernels"]
    table["gpu_ms"] = graph.reindex(table.index)
    table["gpu_us"] = 1e3 * table["gpu_ms"] / table["kernels"]
    table = table.reset_index()
    launch_us = float(table[table["axis"] == "layers"]["enqueue_us"].median())
    table["host_ms"] = table["kernels"] * launch_us / 1e3
    table["predicted_ms"] = table[["host_ms", "gpu_ms"]].max(axis=1)
    table["error"] = table["predicted_ms"] / table["fastest_ms"] - 1
    table["launch_bound"] = ~(table["gpu_ms"] > table["host_ms"])
    low, high = eager["launch_us"].quantile([0.1, 0.9])
    facts = {"launch_us": launch_us, "reference_low_us": float(low), "reference_high_us": float(high)}
    return of_run(table, run, knee_width=_knee(table), **facts, **_per_layer(table))


def _knee(table: pd.DataFrame) -> float:
    """Return the least width from which the GPU takes longer than the launches; infinity without one, NaN on a CPU."""
    sweep = table[table["axis"] == "width"]
    if sweep["gpu_ms"].isna().any():
        return float("nan")
    bound = sweep[sweep["launch_bound"].astype(bool)]["hidden"].max()
    beyond = sweep[~(sweep["hidden"] <= bound)]["hidden"]
    return float(beyond.min()) if len(beyond) else float("inf")


def _per_layer(table: pd.DataFrame) -> dict[str, float]:
    """Return what one more layer costs, by the sweep of layers: kernels, the host's µs, the GPU's µs (NaN on a CPU)."""
    sweep = table[table["axis"] == "layers"]
    columns = {"layer_kernels": "kernels", "layer_host_us": "host_ms", "layer_gpu_us": "gpu_ms"}
    costs = {name: line(list(sweep["layers"]), list(sweep[column]))[0] for name, column in columns.items()}
    return costs | {name: 1e3 * costs[name] for name in costs if name.endswith("us")}
