"""Rows of a bucket sweep → the step by bucket size, the model fitted to it, and the model's best size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.provenance import fact, of_run
from lessons.ddp_from_scratch.tables.steps import SETTING, implementations, overlap, row_of
from lessons.ddp_from_scratch.theory import MIB, Overhead, fit, messages

if TYPE_CHECKING:
    from labkit.engine.run import Run

_POINTS = 60  # of the curve


def buckets(run: Run) -> pd.DataFrame:
    """Return one row per bucket size, smallest first.

    Gradients sent alone ("overlapped") are the smallest buckets. Columns: strategy, bucket_mb (asked for), buckets (how
    many were sent), mean_mib, last_mib (of the last bucket, which no backward hides), step_ms, spread_step_ms, count,
    status, waited_ms, over_ddp, spread_over_ddp, fitted_ms, residual (measured / fitted - 1) and `tied`: differs from
    the fastest by no more than noise. Only bucketed rows are fitted.
    Facts: total_mib; none_ms and ddp_ms with spread_ddp_ms (NaN if the run has none).
    """
    steps = implementations(run)
    none, ddp = row_of(steps, "none"), row_of(steps, "ddp")
    table = steps[steps["strategy"].isin(["bucketed", "overlapped"])].drop(columns=["fitted_ms"], errors="ignore")
    sent = overlap(run)[[*SETTING, "collectives", "last_mib"]].rename(columns={"collectives": "buckets"})
    table = table.merge(sent, on=SETTING, how="left").sort_values("bucket_mb", kind="stable", ignore_index=True)
    plan: Any = run.plan
    total = sum(messages(plan.model, "flat")) / MIB
    table["mean_mib"] = total / table["buckets"]
    line = _line(table, total)
    table["fitted_ms"] = [1e3 * line.seconds(count, total * MIB) if line else np.nan for count in table["buckets"]]
    table["residual"] = table["step_ms"] / table["fitted_ms"] - 1
    ours = table[table["strategy"] == "bucketed"]
    if ours["step_ms"].notna().any():
        best = ours.loc[ours["step_ms"].idxmin()]
        spreads = table["spread_step_ms"] + best["spread_step_ms"]
        table["tied"] = (table["step_ms"] - best["step_ms"]).abs() <= spreads
    else:
        table["tied"] = False
    columns = [
        *SETTING,
        "buckets",
        "mean_mib",
        "last_mib",
        "step_ms",
        "spread_step_ms",
        "count",
        "status",
        "waited_ms",
        "over_ddp",
        "spread_over_ddp",
        "fitted_ms",
        "residual",
        "tied",
    ]
    return of_run(
        table[columns],
        run,
        total_mib=total,
        none_ms=none["step_ms"],
        ddp_ms=ddp["step_ms"],
        spread_ddp_ms=ddp["spread_step_ms"],
    )


def overhead(run: Run) -> pd.DataFrame:
    """Return the fitted t = base + n·o + s/(n·w) as one row, its optimum, and the fastest size that was measured.

    Columns: base_ms, overhead_us (o), gb_per_s (w), residual (largest relative error), optimum_mib (√(s·w·o)),
    optimum_buckets, optimum_ms; best_mb (asked for), best_mib (mean), best_ms; tied_from_mib and tied_to_mib, the
    smallest and largest mean size that differ from the fastest by no more than noise; `identified`: smaller and larger
    sizes than these were measured and are slower. If the fit has o = 0 or an infinite w there is no optimum (NaN).
    Empty if fewer than three sizes were measured.
    """
    table = buckets(run)
    total, line = fact(table, "total_mib"), _line(table, fact(table, "total_mib"))
    ours = table[(table["strategy"] == "bucketed") & table["step_ms"].notna()]
    rows = []
    if line:
        best, tied = ours.loc[ours["step_ms"].idxmin()], ours[ours["tied"]]
        optimum = line.best_bytes(total * MIB) / MIB
        ends = ours["mean_mib"].agg(["min", "max"]).tolist()
        rows.append(
            {
                "base_ms": 1e3 * line.base_s,
                "overhead_us": 1e6 * line.call_s,
                "gb_per_s": line.bytes_per_s / 1e9,
                "residual": line.residual,
                "optimum_mib": optimum,
                "optimum_buckets": total / optimum,
                "optimum_ms": 1e3 * line.seconds(total / optimum, total * MIB),
                "best_mb": best["bucket_mb"],
                "best_mib": best["mean_mib"],
                "best_ms": best["step_ms"],
                "tied_from_mib": tied["mean_mib"].min(),
                "tied_to_mib": tied["mean_mib"].max(),
                "identified": not set(ends) & set(tied["mean_mib"]),
            }
        )
    columns = [
        "base_ms",
        "overhead_us",
        "gb_per_s",
        "residual",
        "optimum_mib",
        "optimum_buckets",
        "optimum_ms",
        "best_mb",
        "best_mib",
        "best_ms",
        "tied_from_mib",
        "tied_to_mib",
        "identified",
    ]
    return of_run(pd.DataFrame(rows, columns=columns), run, total_mib=total)


def curve(run: Run) -> pd.DataFrame:
    """Return the fitted model as a curve from the smallest mean bucket to the largest: mean_mib, buckets, fitted_ms."""
    table = buckets(run)
    total, line = fact(table, "total_mib"), _line(table, fact(table, "total_mib"))
    sizes = np.geomspace(table["mean_mib"].min(), table["mean_mib"].max(), _POINTS) if line else np.array([])
    fitted = [1e3 * line.seconds(total / size, total * MIB) for size in sizes if line]
    return of_run(pd.DataFrame({"mean_mib": sizes, "buckets": total / sizes, "fitted_ms": fitted}), run)


def _line(table: pd.DataFrame, total_mib: float) -> Overhead | None:
    """Return the fit of the bucketed rows; None if they are too few."""
    rows = table[(table["strategy"] == "bucketed") & table["step_ms"].notna() & table["buckets"].notna()]
    if rows["buckets"].nunique() < 3:
        return None
    return fit(rows["buckets"].tolist(), total_mib * MIB, (rows["step_ms"] / 1e3).tolist())
