"""Rows of the profiler → two clocks side by side, kernels by family, operators beside the roofs, attention's parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import fact, of_run
from labkit.tables.rates import PEAK
from labkit.tables.rows import entries
from labkit.theory.transformer import NAMES
from lessons.benchmarking.plan import PHASES, PRECISIONS
from lessons.benchmarking.theory import FAMILIES

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["model", "precision", "phase"]
SHOWN = 10


def accounts(run: Run) -> pd.DataFrame:
    """Return one row per SETTING: what three clocks say of one phase, all in ms.

    Columns: plain_ms (the host's clock without a profiler), clock_ms (with it), window_ms (the profiler, of these very
    steps: first kernel's start to last one's end), busy_ms (something ran on the device), kernels; `apart`: window over
    clock less one; `slowed`: clock over plain less one; `idle_share` of the window.
    """
    measured = ["plain_ms", "clock_ms", "window_ms", "busy_ms", "kernels"]
    table = entries(run, "account").groupby(SETTING, sort=False)[measured].median().reset_index()
    table["apart"] = table["window_ms"] / table["clock_ms"] - 1
    table["slowed"] = table["clock_ms"] / table["plain_ms"] - 1
    table["idle_share"] = 1 - table["busy_ms"] / table["window_ms"]
    return of_run(table, run)


def kernels(run: Run, *, model: str, precision: str) -> pd.DataFrame:
    """Return the kernels (on a CPU: operators) of forward and of forward + backward, most time first.

    Columns: kernel, family, then calls, total_us and share (of all kernels of that phase) for `forward_` and `both_`.
    SHOWN rows by their time in both, and a last one for all others.
    """
    rows = _of(entries(run, "kernel"), model=model, precision=precision)
    sides = []
    for phase in ("forward", "both"):
        own = rows[rows["phase"] == phase]
        sums = own.groupby(["kernel", "family"])[["calls", "total_us"]].sum().div(max(1, own["seed"].nunique()))
        sides.append(sums.assign(share=sums["total_us"] / sums["total_us"].sum()).add_prefix(f"{phase}_"))
    table = sides[1].join(sides[0], how="outer").fillna(0.0).reset_index()
    table = table.sort_values("both_total_us", ascending=False, ignore_index=True)
    shown = table[table["kernel"] != "others"].head(SHOWN)
    rest = table.drop(shown.index).sum(numeric_only=True)
    others = pd.DataFrame([{"kernel": "all others", "family": "", **rest}])
    columns = ["kernel", "family", *sides[0], *sides[1]]
    return of_run(pd.concat([shown, others], ignore_index=True)[columns], run, model=model, precision=precision)


def families(run: Run) -> pd.DataFrame:
    """Return one row per SETTING and family of kernels: total_us, calls, and its share of the time of all kernels."""
    rows = entries(run, "kernel").reindex(columns=[*SETTING, "seed", "family", "calls", "total_us"])
    table = rows.groupby([*SETTING, "family"], sort=False)[["calls", "total_us"]].sum().reset_index()
    table[["calls", "total_us"]] /= max(1, rows["seed"].nunique())
    table["share"] = table["total_us"] / table.groupby(SETTING)["total_us"].transform("sum")
    order = {name: place for place, name in enumerate((*NAMES, *PRECISIONS, *PHASES, *FAMILIES))}
    by = ["model", "precision", "phase", "family"]
    return of_run(table.sort_values(by, key=lambda column: column.map(order), ignore_index=True), run)


def roofline(run: Run, *, model: str, precision: str, phase: str = "step") -> pd.DataFrame:
    """Return one row per operator that computes: FLOP per byte, TFLOP/s, its share of the time, and the roof above it.

    `bound` is the roof that is lower at its intensity ("memory" or "compute"); `of_roof` its rate over that roof. More
    than 1 below the memory roof: its operands came out of the cache. Facts: peak_tflops and gb_per_s, NaN where no
    datasheet is known.
    """
    setting = {"model": model, "precision": precision, "phase": phase}
    rows = _of(entries(run, "operator"), **setting)
    wanted = ["calls", "total_us", "flop", "moved_bytes"]
    table = rows.reindex(columns=["operator", *wanted]).groupby("operator", sort=False)[wanted].mean().reset_index()
    table = _believed(table, _of(entries(run, "kernel"), **setting))
    table["share"] = table["total_us"] / table["total_us"].sum()
    table = table[(table["flop"] > 0) & (table["moved_bytes"] > 0)].reset_index(drop=True)
    table["flop_per_byte"] = table["flop"] / table["moved_bytes"]
    table["tflops"] = table["flop"] / table["total_us"] / 1e6
    known = limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    peak = (known.tflops(PEAK[precision]) if known else None) or float("nan")
    rate = (known.hbm_gb_per_s if known else None) or float("nan")
    memory_roof = table["flop_per_byte"] * rate / 1e3
    table["roof_tflops"] = np.minimum(memory_roof, peak)
    table["bound"] = np.where(memory_roof < peak, "memory", "compute") if known else "no limit known"
    table["of_roof"] = table["tflops"] / table["roof_tflops"]
    return of_run(table, run, **setting, peak_tflops=peak, gb_per_s=rate)


def _believed(table: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the optimizer's time from `kernels` where it exceeds that of all kernels together.

    Watching host and GPU at once, the profiler may give one kernel more time than the step has: an H200's float32
    AdamW of 2.7b got 0.5 s in a step of 0.28 s, twice; watching the GPU alone, 0.027 s.
    """
    whole, own = kernels["total_us"].sum(), kernels[kernels["family"] == "optimizer"]["total_us"].sum()
    wrong = (table["total_us"] > whole) & table["operator"].str.contains("adamw")
    return table.assign(total_us=table["total_us"].mask(wrong, own))


def attention_parts(run: Run) -> pd.DataFrame:
    """Return one row per model, precision and part of plain attention: us, FLOP, bytes, GB/s and TFLOP/s.

    `us_of_products` and `flop_of_products`: the part over the two matrix products together.
    """
    keys = ["model", "precision", "part"]
    table = entries(run, "attention").groupby(keys, sort=False)[["us", "flop", "moved_bytes"]].median().reset_index()
    table["gb_per_s"] = table["moved_bytes"] / table["us"] / 1e3
    table["tflops"] = table["flop"] / table["us"] / 1e6
    products = table[table["part"].isin(["scores", "values"])].groupby(keys[:2])[["us", "flop", "moved_bytes"]].sum()
    both = products.reindex(pd.MultiIndex.from_frame(table[keys[:2]]))
    for column in ("us", "flop", "moved_bytes"):
        table[f"{column}_of_products"] = table[column].to_numpy() / both[column].to_numpy()
    return of_run(table, run)


def timeline(run: Run, *, model: str, precision: str = "") -> pd.DataFrame:
    """Return the spans of one profiled forward: lane ("host" or "GPU"), span, what, family, start_ms, end_ms.

    Without a precision, of the last one that was drawn. Raises ValueError, naming what was drawn, where this was not.
    """
    spans = run.spans
    found = spans[(spans["model"] == model) & (spans["precision"].isin([precision]) | (precision == ""))]
    if found.empty:
        drawn = sorted({f"{row.model}, {row.precision}" for row in spans.itertuples()})
        raise ValueError(f"the forward of {model}, {precision} was not drawn; drawn are {'; '.join(drawn)}")
    found = found[found["point"] == found["point"].max()]
    table = found[["lane", "span", "what", "family"]].reset_index(drop=True)
    for edge in ("start", "end"):
        table[f"{edge}_ms"] = (found[f"{edge}_us"] / 1e3).to_numpy()
    return of_run(table, run, model=model, precision=found["precision"].iloc[0])


def export_trace(run: Run, *, model: str, precision: str = "", file: str | Path = "") -> Path:
    """Write the spans of one profiled forward as a trace that ui.perfetto.dev opens; return the file.

    Without `file` it lies in the run's own folder. Raises ValueError for a recorded run without `file`.
    """
    if not file and run.recorded:
        raise ValueError("a recorded run is not written to: name a file")
    spans = timeline(run, model=model, precision=precision)
    target = Path(file or run.folder / f"trace-{model}-{fact(spans, 'precision')}.json")
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(spans["lane"]))}
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": n, "args": {"name": lane}} for lane, n in lanes.items()
    ]
    drawn = [
        {
            "ph": "X",
            "name": row.what,
            "cat": f"{row.span},{row.family}",
            "pid": 0,
            "tid": lanes[row.lane],
            "ts": 1e3 * row.start_ms,
            "dur": 1e3 * (row.end_ms - row.start_ms),
        }
        for row in spans.itertuples(index=False)
    ]
    target.write_text(json.dumps({"traceEvents": [*named, *drawn], "displayTimeUnit": "ms"}))
    return target


def _of(rows: pd.DataFrame, **setting: str) -> pd.DataFrame:
    """Return the rows of one setting. Raises ValueError, naming what there is, where there are none."""
    found = rows
    for knob, value in setting.items():
        found = found[found[knob] == value]
    if found.empty:
        known = rows[[*setting]].drop_duplicates().to_dict("split", index=False)["data"]
        raise ValueError(f"{', '.join(setting.values())} was not profiled; profiled are {known}")
    return found
