"""Rows of lab 10 → tables: steps and what was sent when, buckets and the formula fitted to them, cases, symptoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import fact, of_run
from labkit.tables.profile import profile as profile
from labkit.tables.profile import trace_spans as trace_spans
from labkit.theory.sizes import MIB
from labkit.theory.traffic import Sent, through_a_link
from lessons.ddp_from_scratch.theory import NAMES, Overhead, messages

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["strategy", "bucket_mb"]
_SAME_PEAK = 0.05  # largest relative difference of peaks that count as one
_PARTS = ["forward_ms", "backward_ms", "waited_ms", "optimizer_ms"]


def implementations(run: Run) -> pd.DataFrame:
    """Return one row per setting: its step, the parts of it, its memory, compared with sending nothing and with DDP.

    Columns: strategy, bucket_mb (MiB); step_ms (median over rounds of the slowest rank), spread_step_ms, count, status;
    its parts forward_ms, backward_ms, waited_ms (from the last gradient until all are averaged), optimizer_ms, medians
    over ranks and rounds; longer_ms, the step minus the step of "none", and its spread; peak_mib of the fullest rank
    (NaN on a CPU, and if ranks or rounds differ: then it does not describe the strategy) and extra_mib, minus the peak
    of "none"; over_ddp, the step divided by that of torch's DDP, and its spread. A comparison is NaN if the run lacks
    the strategy to compare with. Facts: `sequences` of all ranks together, `positions` per sequence.
    """
    table = run.medians(SETTING, "step_ms")
    rows = _timed(run)
    parts = rows.groupby(SETTING, sort=False)[_PARTS].median()
    peaks = rows.groupby(SETTING, sort=False)["peak_mib"]
    parts["peak_mib"] = peaks.max().where(peaks.max() <= (1 + _SAME_PEAK) * peaks.min())
    table = table.merge(parts.reset_index(), on=SETTING, how="left")
    none, ddp = row_of(table, "none"), row_of(table, "ddp")
    table["longer_ms"] = table["step_ms"] - none["step_ms"]
    table["spread_longer_ms"] = table["spread_step_ms"] + none["spread_step_ms"]
    table["extra_mib"] = table["peak_mib"] - none["peak_mib"]
    table["over_ddp"] = table["step_ms"] / ddp["step_ms"]
    table["spread_over_ddp"] = (table["spread_step_ms"] + ddp["spread_step_ms"] * table["over_ddp"]) / ddp["step_ms"]
    return of_run(table, run, sequences=run.plan.samples * run.plan.gpus, positions=run.plan.sequence)


def costs(run: Run) -> pd.DataFrame:
    """Return `implementations` as a reader sees it, rounded; the columns' names carry the units.

    GB/s: what a ring sends through a link over the wait, where all is sent after backward; flat's wait contains its two
    copies.
    """
    table = implementations(run)
    link = through_a_link([Sent("all-reduce", 1, sum(messages(run.plan.model, "flat")))], run.plan.gpus)
    shown = {
        "strategy": table["strategy"].map(NAMES),
        "step, ms": table["step_ms"],
        "± ms": table["spread_step_ms"],
        "longer than nothing sent, ms": table["longer_ms"],
        "beyond noise": table["longer_ms"].abs() > table["spread_longer_ms"],
        "wait after backward, ms": table["waited_ms"],
        "GB/s": (link / table["waited_ms"] / 1e6).where(table["strategy"].isin(["naive", "flat"])),
        "extra memory, GiB": table["extra_mib"] / 1024,
        "× torch's DDP": table["over_ddp"],
    }
    digits = {name: 1 if name.endswith("ms") else 2 for name in shown}
    return of_run(pd.DataFrame(shown).round(digits), run)


def _timed(run: Run) -> pd.DataFrame:
    """Return the rows of timed steps, without warm-ups."""
    rows = run.entries("step", ["warm_up", *SETTING, *_PARTS, "peak_mib"])
    return rows[~rows["warm_up"].astype(bool)]


def row_of(table: pd.DataFrame, strategy: str) -> pd.Series:
    """Return the first row of a strategy; all NaN if the table has none."""
    rows = table[table["strategy"] == strategy]
    return rows.iloc[0] if len(rows) else pd.Series(float("nan"), index=table.columns)


_COUNTS = ["collectives", "during_backward", "before_last_gradient", "gradients", "gradients_after_first"]


def overlap(run: Run) -> pd.DataFrame:
    """Return one row per setting: the all-reduces that rank 0 called in one step, and those that theory expects.

    Columns: strategy, bucket_mb; collectives (calls), during_backward and before_last_gradient (of these calls, those
    before the end of backward, and before the last gradient was computed); gradients, and gradients_after_first (those
    computed after the first call); expected calls; sent_mib; largest_mib and last_mib of one call; `equal`: number and
    sizes of calls are theory's. torch's DDP orders its buckets as its first backward went, so only its number of calls
    and its sum of bytes are compared.
    """
    plan = run.plan
    rows = run.entries("sent", [*SETTING, *_COUNTS, "sizes_bytes"])
    rows = rows[rows["rank"] == 0].drop_duplicates(SETTING)
    parts = []
    for row in rows.to_dict("records"):
        expected, sizes = messages(plan.model, row["strategy"], row["bucket_mb"]), list(row["sizes_bytes"])
        same_sum = (len(sizes), sum(sizes)) == (len(expected), sum(expected))
        parts.append(
            {
                **{name: row[name] for name in SETTING},
                **{name: int(row[name]) for name in _COUNTS},
                "expected": len(expected),
                "sent_mib": sum(sizes) / MIB,
                "largest_mib": max(sizes, default=0) / MIB,
                "last_mib": sizes[-1] / MIB if sizes else 0.0,
                "equal": same_sum if row["strategy"] == "ddp" else sizes == expected,
            }
        )
    columns = [*SETTING, *_COUNTS, "expected", "sent_mib", "largest_mib", "last_mib", "equal"]
    return of_run(pd.DataFrame(parts, columns=columns), run)


_ERRORS = ["gradient_error", "weight_error", "buffer_error", "apart"]
_MEANING = {
    "plain": "every rank makes other weights; all start with rank 0's",
    "tied": "one weight is used in two layers; its gradient is sent once",
    "frozen": "some weights need no gradient; none is sent for them",
    "unused": "forward never calls one layer; its gradient stays None",
    "unused_on_some": "a weight is used on one rank only; its gradient on the other ranks counts as zero",
    "buffers": "a running mean changes in forward; all ranks get rank 0's after each step",
    "accumulation": "two micro-batches, the first inside no_sync",
    "two_backwards": "two backwards before one step; both are averaged",
    "kept_gradients": "gradients are never cleared; they add up over the steps",
    "uneven": "ranks have different numbers of samples; right is the mean of the ranks' means",
    "weighted": "the same, with scaled losses; right is the mean over all samples",
    "no_samples": "the last rank has no samples; it calls only finish()",
    "bfloat16": "weights and gradients are bfloat16",
    "mixed": "some weights are bfloat16, the others float32",
}
# float32 rounds to 6e-8 and bfloat16 to 4e-3, a few times in a row.
_TOLERANCES = {"bfloat16": 2e-2, "mixed": 2e-2}
_TOLERANCE = 1e-5


def equality(run: Run) -> pd.DataFrame:
    """Return one row per case and strategy: the largest errors over ranks and seeds, and whether all are in tolerance.

    Columns: case, strategy, gradient_error, weight_error, buffer_error, apart (of the ranks from each other: must be
    0), none_right (gradients are None exactly where they are in one process), tolerance, equal.
    """
    rows = run.entries("equality", ["case", "strategy", *_ERRORS, "none_right"])
    groups = rows.groupby(["case", "strategy"], sort=False)
    table = groups[_ERRORS].max().join(groups["none_right"].min().astype(bool)).reset_index()
    table["tolerance"] = table["case"].map(_TOLERANCES).fillna(_TOLERANCE)
    close = table[_ERRORS[:3]].le(table["tolerance"], axis=0).all(axis=1)
    table["equal"] = close & (table["apart"] == 0) & table["none_right"]
    return of_run(table, run)


def cases(run: Run) -> pd.DataFrame:
    """Return one row per case: case, meaning, tolerance, the largest error of all strategies, whether all are right."""
    table = equality(run)
    groups = table.assign(error=table[_ERRORS].max(axis=1)).groupby("case", sort=False)
    shown = groups.agg(tolerance=("tolerance", "first"), error=("error", "max"), right=("equal", "all")).reset_index()
    shown.insert(1, "meaning", shown["case"].map(_MEANING))
    return of_run(shown, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: how far its gradients are from the right ones, and what it sent.

    Columns: variant; error_rank_0, error_worst (the largest of all ranks) and error_later (the largest when
    everything has arrived); collectives (calls) and expected ones; largest_mib of a call; bucket_mb; and
    before_last_gradient, the calls made before the last gradient was computed.
    """
    plan = run.plan
    rows = run.entries("trial")
    parts = []
    for variant, group in rows.groupby("variant", sort=False):
        first = group[group["rank"] == 0].iloc[0]
        parts.append(
            {
                "variant": variant,
                "error_rank_0": first["error"],
                "error_worst": group["error"].max(),
                "error_later": group["later_error"].max(),
                "collectives": int(first["collectives"]),
                "expected": len(messages(plan.model, "bucketed", first["bucket_mb"])),
                "largest_mib": max(first["sizes_bytes"]) / MIB,
                "bucket_mb": first["bucket_mb"],
                "before_last_gradient": int(first["before_last_gradient"]),
            }
        )
    return of_run(pd.DataFrame(parts), run)


_POINTS = 60  # of the curve


def buckets(run: Run) -> pd.DataFrame:
    """Return one row per bucket size, smallest first.

    Gradients sent alone ("overlapped") are the smallest buckets. Columns: strategy, bucket_mb (MiB that were asked
    for), buckets (how many were sent), mean_mib, last_mib (of the last bucket, which no backward hides), step_ms,
    spread_step_ms, count, status, waited_ms, over_ddp, spread_over_ddp, fitted_ms, residual (measured / fitted - 1) and
    `tied`: differs from the fastest by no more than noise. Only bucketed rows are fitted.
    Facts: total_mib; none_ms and ddp_ms (NaN if the run has none).
    """
    steps = implementations(run)
    none, ddp = row_of(steps, "none"), row_of(steps, "ddp")
    table = steps[steps["strategy"].isin(["bucketed", "overlapped"])]
    sent = overlap(run)[[*SETTING, "collectives", "last_mib"]].rename(columns={"collectives": "buckets"})
    table = table.merge(sent, on=SETTING, how="left").sort_values("bucket_mb", kind="stable", ignore_index=True)
    plan = run.plan
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
    shown = ["buckets", "mean_mib", "last_mib", "step_ms", "spread_step_ms", "count", "status", "waited_ms"]
    return of_run(
        table[[*SETTING, *shown, "over_ddp", "spread_over_ddp", "fitted_ms", "residual", "tied"]],
        run,
        total_mib=total,
        none_ms=none["step_ms"],
        ddp_ms=ddp["step_ms"],
    )


def overhead(run: Run) -> pd.DataFrame:
    """Return the fitted t = base + n·o + s/(n·w) as one row, its optimum, and the fastest size that was measured.

    Columns: overhead_us (o), gb_per_s (w), residual (largest relative error), optimum_mib (√(s·w·o)), optimum_buckets,
    optimum_ms; best_mib, the mean of the fastest size; tied_from_mib and tied_to_mib, the smallest and largest mean
    that differ from it by no more than noise; `identified`: smaller and larger sizes than these were measured and are
    slower. There is no optimum (NaN) if the fit has o = 0, or a w that is infinite or above `limit_gb_per_s`, an
    all-reduce's most bytes per second over the GPU's links. Empty if fewer than three sizes were measured.
    """
    table = buckets(run)
    total, line = fact(table, "total_mib"), _line(table, fact(table, "total_mib"))
    ours = table[(table["strategy"] == "bucketed") & table["step_ms"].notna()]
    rows = []
    if line:
        best, tied = ours.loc[ours["step_ms"].idxmin()], ours[ours["tied"]]
        limit = _link_limit_gb_per_s(run)
        impossible = line.bytes_per_s / 1e9 > limit * (1 + limits.RESOLUTION)
        optimum = math.nan if impossible else line.best_bytes(total * MIB) / MIB
        ends = ours["mean_mib"].agg(["min", "max"]).tolist()
        rows.append(
            {
                "overhead_us": 1e6 * line.call_s,
                "gb_per_s": line.bytes_per_s / 1e9,
                "limit_gb_per_s": limit,
                "residual": line.residual,
                "optimum_mib": optimum,
                "optimum_buckets": total / optimum,
                "optimum_ms": 1e3 * line.seconds(total / optimum, total * MIB),
                "best_mib": best["mean_mib"],
                "tied_from_mib": tied["mean_mib"].min(),
                "tied_to_mib": tied["mean_mib"].max(),
                "identified": not set(ends) & set(tied["mean_mib"]),
            }
        )
    columns = ["overhead_us", "gb_per_s", "limit_gb_per_s", "residual", "optimum_mib", "optimum_buckets", "optimum_ms"]
    columns += ["best_mib", "tied_from_mib", "tied_to_mib", "identified"]
    return of_run(pd.DataFrame(rows, columns=columns), run, total_mib=total)


def _link_limit_gb_per_s(run: Run) -> float:
    """Return the most bytes per second that an all-reduce can average; NaN where no limit is known."""
    ranks = run.plan.gpus
    bus = limits.bus_bandwidth_limit(run.datasheet, ranks, "all-reduce") if ranks > 1 else None
    return math.nan if bus is None else bus * ranks / (2 * (ranks - 1))


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


_ROUNDING = 1e-12  # share of a step; costs below it come from the arithmetic of the fit


def fit(counts: Sequence[float], total_bytes: float, seconds: Sequence[float]) -> Overhead:
    """Fit base, o and 1/w to measured steps by least squares, with o and 1/w not below 0; `counts` are of buckets.

    Raises ValueError for fewer than three different counts.
    """
    if len(set(counts)) < 3:
        raise ValueError("three unknowns need three numbers of buckets or more")
    design = np.column_stack([np.ones(len(counts)), counts, total_bytes / np.asarray(counts, dtype=float)])
    measured, fits = np.asarray(seconds, dtype=float), []
    for chosen in ((0, *more) for count in range(3) for more in combinations((1, 2), count)):
        scale = design[:, chosen].max(axis=0)  # columns of one size: their numbers differ by many powers of ten
        weights = np.zeros(3)
        weights[list(chosen)] = np.linalg.lstsq(design[:, chosen] / scale, measured)[0] / scale
        fits.append((float(((design @ weights - measured) ** 2).sum()), weights))
    base, call, slope = min(
        (candidate for candidate in fits if min(candidate[1][1:]) >= 0), key=lambda candidate: candidate[0]
    )[1].tolist()
    none_s = _ROUNDING * max(seconds)
    calls_s, bytes_s = call * design[:, 1].max(), slope * design[:, 2].max()
    line = Overhead(base, call if calls_s > none_s else 0.0, 1 / slope if bytes_s > none_s else math.inf)
    fitted = np.array([line.seconds(count, total_bytes) for count in counts])
    return Overhead(line.base_s, line.call_s, line.bytes_per_s, float(np.abs(fitted / measured - 1).max()))
