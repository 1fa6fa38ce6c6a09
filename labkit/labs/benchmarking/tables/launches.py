"""Rows of forwards by depth, width and size → host time beside GPU time, and the model of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.labs.benchmarking.theory import line
from labkit.provenance import of_run
from labkit.tables.rows import entries

if TYPE_CHECKING:
    from labkit.engine.run import Run

_POINT = ["axis", "model", "hidden", "layers"]


def launches(run: Run) -> pd.DataFrame:
    """Return one row per forward: kernels, its eager time, the host's part and the GPU's, and what the model predicts.

    Columns: axis, model, hidden, layers, kernels, eager_ms, spread_ms, enqueue_ms (until the host had launched all),
    launch_us (the host's time per kernel of the reference, just before), host_ms (kernels times that), gpu_ms (the same
    kernels from a CUDA graph; NaN without a GPU), busy_ms, gpu_us per kernel, predicted_ms (the longer of host_ms and
    gpu_ms; nothing is fitted), error (predicted over measured, less one), launch_bound. Facts: `launch_us`, the median;
    `knee_width`, from which on the GPU takes longer than the launches; `layer_kernels`, `layer_host_us` and
    `layer_gpu_us` of one more layer.
    """
    rows = entries(run, "launch").assign(model=lambda found: found["model"].fillna(""))
    timed = rows[~rows["warm_up"].astype(bool)]
    ms = timed.pivot_table(index=_POINT, columns="mode", values="ms", aggfunc="median")
    eager = timed[timed["mode"] == "eager"].groupby(_POINT, sort=False)
    counts = entries(run, "kernels").assign(model=lambda found: found["model"].fillna(""))
    table = counts.groupby(_POINT, sort=False)[["kernels", "busy_ms"]].median()
    half = (eager["ms"].quantile(0.75) - eager["ms"].quantile(0.25)) / 2
    table = table.assign(eager_ms=ms["eager"], spread_ms=half, **eager[["enqueue_ms", "launch_us"]].median())
    table["host_ms"] = table["kernels"] * table["launch_us"] / 1e3
    table["gpu_ms"] = ms["graph"] if "graph" in ms else float("nan")
    table = table.reset_index()
    table["gpu_us"] = 1e3 * table["gpu_ms"] / table["kernels"]
    table["predicted_ms"] = table[["host_ms", "gpu_ms"]].max(axis=1)
    table["error"] = table["predicted_ms"] / table["eager_ms"] - 1
    table["launch_bound"] = ~(table["gpu_ms"] > table["host_ms"])
    facts = {"launch_us": float(table["launch_us"].median()), "knee_width": _knee(table)}
    return of_run(table, run, **facts, **_per_layer(table))


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
