"""Rows of lab 06 → tables: times beside least times, first iterations, launches beside work, what the profiler saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.engine.run import half_spread
from labkit.node import limits
from labkit.provenance import fact, of_run
from labkit.tables.rates import PEAK
from labkit.theory.transformer import NAMES, forward_flop
from lessons.benchmarking.plan import MODES, PHASES, PRECISIONS
from lessons.benchmarking.theory import FAMILIES, FORWARDS, line

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["model", "precision", "mode", "phase"]
WARM_UPS = (0, 1, 2, 5)
_ORDER = {"model": NAMES, "precision": PRECISIONS, "mode": MODES, "phase": PHASES, "family": FAMILIES}
_SHAPE = ["axis", "model", "hidden", "layers"]
_PROFILED = ["model", "precision", "phase"]
_TOP = 5  # kernels of each phase


def steps(run: Run) -> pd.DataFrame:
    """Return one row per SETTING: its median, and how far it is from the least time of its FLOP.

    Columns: layers, ms, spread_ms, count, status; flop (of one forward: 1, with backward: 3), tflops,
    peak_tflops (the units' dense rate), mfu and verdict; least_ms, the time of these FLOP at that rate.
    """
    table = run.medians(SETTING, "ms").dropna(subset="phase")
    table["layers"] = [run.plan.dimensions(model)[2] for model in table["model"]]
    forwards = {model: _flop(run.plan, model) for model in dict.fromkeys(table["model"])}
    table["flop"] = table["model"].map(forwards) * table["phase"].map(FORWARDS)
    table["tflops"] = table["flop"] / table["ms"] / 1e9
    datasheet = run.datasheet
    peaks = [datasheet.tflops(PEAK[precision]) if datasheet else None for precision in table["precision"]]
    table["peak_tflops"] = pd.Series(peaks, table.index, dtype=float)
    table["least_ms"] = table["flop"] / table["peak_tflops"] / 1e9
    table = limits.against_limit(table, "tflops", "peak_tflops").rename(columns={"share_of_limit": "mfu"})
    return of_run(_sorted(table.drop(columns="limit")), run)


def _flop(plan: Any, model: str) -> int:
    return forward_flop(plan.shape(model), plan.dimensions(model)[0], plan.sequence, plan.samples)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows by size, precision, mode, phase and family."""
    by = [name for name in _ORDER if name in table]
    return table.sort_values(by, key=lambda column: column.map(_ORDER[column.name].index), ignore_index=True)


def modes(run: Run) -> pd.DataFrame:
    """Return one row per model and phase in bfloat16: ms of every mode, what launches and fusion make of eager's time.

    Columns: eager_ms, graph_ms, compiled_ms, compiled_graph_ms (NaN where not measured); `launches`: eager over graph,
    the same kernels without their launches; `fusion`: graph over compiled_graph, other kernels without launches;
    `compiling`: eager over compiled.
    """
    table = steps(run).query("precision == 'autocast'")
    wide = table.pivot_table(values="ms", index=["model", "phase"], columns="mode", aggfunc="first")
    wide = wide.reindex(columns=list(MODES)).add_suffix("_ms")
    wide["launches"] = wide["eager_ms"] / wide["graph_ms"]
    wide["fusion"] = wide["graph_ms"] / wide["compiled_graph_ms"]
    wide["compiling"] = wide["eager_ms"] / wide["compiled_ms"]
    return of_run(_sorted(wide.reset_index()), run)


def iterations(run: Run, phase: str = "forward") -> pd.DataFrame:
    """Return every eager float32 iteration of the five sizes, warm-ups included: model, iteration, warm_up, ms, sm_mhz.

    `times_later`: an iteration over the median of those after all warm-ups. Of several seeds the first.
    """
    columns = [*SETTING, "seed", "iteration", "warm_up", "ms", "sm_mhz"]
    rows = run.entries("phase", columns)[columns]
    rows = rows[(rows["precision"] == "float32") & (rows["mode"] == "eager") & (rows["phase"] == phase)]
    rows = rows[rows["seed"] == rows["seed"].min()].drop(columns=["seed", "precision", "mode", "phase"])
    later = rows[~rows["warm_up"].astype(bool)].groupby("model")["ms"].median()
    rows["times_later"] = rows["ms"] / rows["model"].map(later)
    return of_run(rows.reset_index(drop=True), run)


def warm_ups(run: Run) -> pd.DataFrame:
    """Return one row per phase of the smallest size and number of iterations dropped.

    Columns: mean_ms, std_ms, median_ms, spread_ms, count. All use the same iterations but those dropped, two at least.
    """
    stretches = []
    for phase in PHASES:
        table = iterations(run, phase)
        all_ms = table[table["model"] == NAMES[0]].sort_values("iteration")["ms"]
        for dropped in (few for few in WARM_UPS if few < len(all_ms) - 1):
            ms = all_ms.iloc[dropped:]
            stretches.append((phase, dropped, ms.mean(), ms.std(), ms.median(), half_spread(ms), len(ms)))
    columns = ["phase", "warm_ups", "mean_ms", "std_ms", "median_ms", "spread_ms", "count"]
    return of_run(pd.DataFrame(stretches, columns=columns), run)


def launches(run: Run) -> pd.DataFrame:
    """Return one row per forward: kernels, its eager time, the host's part and the GPU's, and what the model predicts.

    Columns: axis, model, hidden, layers, kernels, busy_ms, eager_ms (the median), spread_ms, launch_us (what a launch
    of the small forward before it took), gpu_ms (the same kernels from a CUDA graph; NaN without a GPU), gpu_us per
    kernel, host_ms (kernels × time per launch), predicted_ms (the longer of host_ms and gpu_ms), error (predicted over
    eager, less one), launch_bound.

    The time per launch is that of the small forward just before, because a host's speed changes, times a factor: a
    long forward pays less per launch than the small one that starts on an idle device. The sweep of layers gives it by
    the number of kernels; no size takes part. Facts: `launch_us`, the median time per launch of the sweep of layers;
    `low_us` and `high_us`, the first and last decile of the small forward's; `knee_width`, from which on the GPU takes
    longer than the launches; `layer_kernels`, `layer_host_us` and `layer_gpu_us` of one more layer.
    """
    rows = run.entries("launch").assign(model=lambda entries: entries["model"].fillna(""))
    timed = rows[~rows["warm_up"].astype(bool)]
    counts = run.entries("kernels").assign(model=lambda entries: entries["model"].fillna(""))
    reference = counts["axis"] == "reference"
    table = counts[~reference].groupby(_SHAPE, sort=False)[["kernels", "busy_ms"]].median()
    eager = timed[timed["mode"] == "eager"].drop(columns="kernels", errors="ignore").join(table["kernels"], on=_SHAPE)
    eager["launch_us"] = 1e3 * eager["reference_ms"] / counts.loc[reference, "kernels"].median()
    enqueue_us = 1e3 * eager["enqueue_ms"] / eager["kernels"]
    swept = eager["axis"] == "layers"
    factors = (enqueue_us / eager["launch_us"])[swept].groupby(eager["kernels"]).median()
    factor = np.interp(np.log(eager["kernels"]), np.log(factors.index), factors)
    eager = eager.assign(host_ms=eager["kernels"] * eager["launch_us"] * factor / 1e3)
    by_shape = eager.groupby(_SHAPE, sort=False)
    eager_ms = by_shape["ms"]
    table = table.assign(
        eager_ms=eager_ms.median(), spread_ms=half_spread(eager_ms), launch_us=by_shape["launch_us"].median()
    )
    table["gpu_ms"] = timed[timed["mode"] == "graph"].groupby(_SHAPE)["ms"].median().reindex(table.index)
    table["gpu_us"] = 1e3 * table["gpu_ms"] / table["kernels"]
    table["host_ms"] = by_shape["host_ms"].median()
    table = table.reset_index()
    table["predicted_ms"] = table[["host_ms", "gpu_ms"]].max(axis=1)
    table["error"] = table["predicted_ms"] / table["eager_ms"] - 1
    table["launch_bound"] = ~(table["gpu_ms"] > table["host_ms"])
    low, high = eager["launch_us"].quantile([0.1, 0.9])
    facts = {"launch_us": float(enqueue_us[swept].median()), "low_us": float(low), "high_us": float(high)}
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


def accounts(run: Run) -> pd.DataFrame:
    """Return one row per model, precision and phase: what three clocks say of one phase, all in ms.

    Columns: plain_ms (the host's clock before any profiler), clock_ms (with it), window_ms (the profiler, of these very
    steps: first kernel's start to last one's end), busy_ms (something ran on the device), kernels; `apart`: window over
    clock less one; `slowed`: clock over plain less one; `idle_share` of the window.
    """
    measured = ["clock_ms", "window_ms", "busy_ms", "kernels"]
    table = run.entries("account").groupby(_PROFILED, sort=False)[measured].median()
    table = table.join(run.entries("plain").groupby(_PROFILED)["plain_ms"].median()).reset_index()
    table["apart"] = table["window_ms"] / table["clock_ms"] - 1
    table["slowed"] = table["clock_ms"] / table["plain_ms"] - 1
    table["idle_share"] = 1 - table["busy_ms"] / table["window_ms"]
    return of_run(table, run)


def kernels(run: Run) -> pd.DataFrame:
    """Return the kernels (on a CPU: operators) of the largest size in float32 that take most of each phase.

    Columns: phase, kernel, family, calls, total_us and share (of all kernels of that phase).
    """
    rows = run.entries("kernel").query("precision == 'float32' and phase != 'step'")
    rows = rows[rows["model"] == run.plan.models[-1]]
    table = rows.groupby(["phase", "kernel", "family"], sort=False)[["calls", "total_us"]].mean().reset_index()
    table["share"] = table["total_us"] / table.groupby("phase")["total_us"].transform("sum")
    table = table[table["kernel"] != "others"].sort_values("share", ascending=False)
    top = table.groupby("phase", sort=False).head(_TOP)
    return of_run(top.sort_values("phase", key=lambda c: c.map(PHASES.index), kind="stable", ignore_index=True), run)


def families(run: Run) -> pd.DataFrame:
    """Return one row per model, precision, phase and family of kernels: its share of the time of all kernels."""
    rows = run.entries("kernel", [*_PROFILED, "family", "total_us"])
    table = rows.groupby([*_PROFILED, "family"], sort=False)["total_us"].sum().reset_index()
    table["share"] = table["total_us"] / table.groupby(_PROFILED)["total_us"].transform("sum")
    return of_run(_sorted(table.drop(columns="total_us")), run)


def attention_parts(run: Run) -> pd.DataFrame:
    """Return softmax beside the two matrix products of plain attention, one row per model and precision.

    Columns: us, flop, moved_bytes: those of softmax over those of both products together.
    """
    keys, sums = ["model", "precision"], ["us", "flop", "moved_bytes"]
    parts = run.entries("attention").groupby([*keys, "part"], sort=False)[sums].median().reset_index("part")
    products = parts[parts["part"].isin(["scores", "values"])].groupby(level=keys, sort=False)[sums].sum()
    return of_run((parts[parts["part"] == "softmax"][sums] / products).reset_index(), run)


def roofline(run: Run) -> pd.DataFrame:
    """Return one row per operator that computes in an AdamW step of the largest size: its rate, and the roof above it.

    In the plan's last precision. Columns: flop_per_byte, tflops, share of all operators' time, roof_tflops; `bound` is
    the roof that is lower at its intensity ("memory" or "compute"); `of_roof` its rate over that roof. More than 1
    below the memory roof: operands came out of the cache, or were not all read (an embedding). Facts: model,
    precision, busy_share (of the step alone), peak_tflops and gb_per_s, NaN where no datasheet is known.
    """
    largest, precision = run.plan.models[-1], run.plan.precisions[-1]
    largest_step = "model == @largest and precision == @precision and phase == 'step'"
    rows, kernel_rows = run.entries("operator").query(largest_step), run.entries("kernel").query(largest_step)
    counted = ["calls", "total_us", "flop", "moved_bytes"]
    table = rows.reindex(columns=["operator", *counted]).groupby("operator", sort=False)[counted].mean().reset_index()
    table = _believed(_as_it_ran(table), kernel_rows)
    table["share"] = table["total_us"] / table["total_us"].sum()
    table = table[(table["flop"] > 0) & (table["moved_bytes"] > 0)].reset_index(drop=True)
    table["flop_per_byte"] = table["flop"] / table["moved_bytes"]
    table["tflops"] = table["flop"] / table["total_us"] / 1e6
    datasheet = run.datasheet
    peak = (datasheet.tflops(PEAK[precision]) if datasheet else None) or float("nan")
    rate = (datasheet.hbm_gb_per_s if datasheet else None) or float("nan")
    memory_roof = table["flop_per_byte"] * rate / 1e3
    table["roof_tflops"] = np.minimum(memory_roof, peak)
    table["bound"] = np.where(memory_roof < peak, "memory", "compute") if datasheet else "no limit known"
    table["of_roof"] = table["tflops"] / table["roof_tflops"]
    account = accounts(run).query(largest_step).iloc[0]
    busy_share = account["busy_ms"] / account["plain_ms"]
    roofs = {"peak_tflops": peak, "gb_per_s": rate}
    return of_run(table, run, model=largest, precision=precision, busy_share=busy_share, **roofs)


def _as_it_ran(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with two counts corrected to what ran while the profiler watched.

    While torch counts, autograd adds gradients up in new tensors ("aten::add"), otherwise in place ("aten::add_", which
    then has a time and no counts): both are one row. The fused AdamW's schema says that it writes to the gradients, one
    of four tensors that it reads; its kernel does so only for a gradient scaler (torch's fused_adam_utils.cuh).
    """
    out_of_place = table["operator"].str.removesuffix("_")
    merged = table["flop"].isna() & out_of_place.isin(table["operator"])
    names = table["operator"].mask(merged, out_of_place)
    table = table.groupby(names, sort=False).sum(numeric_only=True, min_count=1).reset_index()
    adamw = table["operator"].str.contains("fused_adamw")
    return table.assign(moved_bytes=table["moved_bytes"].mask(adamw, table["moved_bytes"] * 7 / 8))


def _believed(table: pd.DataFrame, kernel_rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the optimizer's time from the kernels where it exceeds that of all kernels together.

    Watching host and GPU at once, the profiler may give one kernel more time than the step has: an H200's float32
    AdamW of 2.7b got 0.5 s in a step of 0.28 s, twice; watching the GPU alone, 0.027 s.
    """
    whole = kernel_rows["total_us"].sum()
    optimizer_us = kernel_rows[kernel_rows["family"] == "optimizer"]["total_us"].sum()
    wrong = (table["total_us"] > whole) & table["operator"].str.contains("adamw")
    return table.assign(total_us=table["total_us"].mask(wrong, optimizer_us))


def timelines(run: Run) -> list[pd.DataFrame]:
    """Return the spans of each forward that the plan draws, a table each, with its model and precision as facts.

    Columns: lane ("host" or "GPU"), span, what, family, start_ms, end_ms.
    """
    tables = []
    for setting in run.plan.drawn:
        model, precision = setting.split()
        spans = run.spans[(run.spans["model"] == model) & (run.spans["precision"] == precision)]
        spans = spans[spans["point"] == spans["point"].max()]
        table = spans[["lane", "span", "what", "family"]].reset_index(drop=True)
        for edge in ("start", "end"):
            table[f"{edge}_ms"] = (spans[f"{edge}_us"] / 1e3).to_numpy()
        tables.append(of_run(table, run, model=model, precision=precision))
    return tables


def export_trace(spans: pd.DataFrame, run: Run) -> Path:
    """Write the spans of one forward as a trace that ui.perfetto.dev opens; return the file."""
    target = run.exports / f"trace-{fact(spans, 'model')}-{fact(spans, 'precision')}.json"
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(spans["lane"]))}
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": n, "args": {"name": lane}} for lane, n in lanes.items()
    ]
    drawn = []
    for row in spans.itertuples(index=False):
        when = {"ts": 1e3 * row.start_ms, "dur": 1e3 * (row.end_ms - row.start_ms)}
        what = {"name": row.what, "cat": f"{row.span},{row.family}"}
        drawn.append({"ph": "X", "pid": 0, "tid": lanes[row.lane], **what, **when})
    target.write_text(json.dumps({"traceEvents": [*named, *drawn], "displayTimeUnit": "ms"}), encoding="utf-8")
    return target


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per benchmark on trial: `variant`, and what it showed (see `worker.trials.try_variant`)."""
    columns = ["variant", "reported_ms", "true_ms", "first_times", "in_flight", "steps_before", "loss_apart"]
    return of_run(run.entries("trial", columns)[columns].reset_index(drop=True), run)


def wrong_by_rows(row: dict[str, Any]) -> list[str]:
    """Return what is wrong with a benchmark, by what it did alone: names of bugs, none for a right one."""
    signs = {
        "unsynchronised": row["in_flight"] > 0,
        "first_inside": row["steps_before"] == 0,
        "dropout_on": row["loss_apart"] > 0,
    }
    return [name for name, shown in signs.items() if shown]
