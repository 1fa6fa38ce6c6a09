"""Rows of lab 03 → tables: samples a second, memory, trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import made_from, of_run
from lessons.pipeline.plan import BY_HAND
from lessons.pipeline.theory.simulator import speedup_limit

if TYPE_CHECKING:
    from labkit.engine.run import Run

_PIPELINE = ["ranks", "split", "schedule", "mode", "precision", "micro_batches"]
_MODEL = ["attention", "dropout"]  # only some plans turn these knobs


def setting_knobs(run: Run) -> list[str]:
    """Return the names of the knobs in which the settings of a run can differ."""
    return [*_PIPELINE, *(name for name in _MODEL if hasattr(run.plan.points()[0], name))]


def throughput(run: Run) -> pd.DataFrame:
    """Return one row per setting: knobs, step_ms (median), spread, count, status, samples_per_s and its spread.

    A step lasts as long as its slowest rank.
    """
    table = run.medians(setting_knobs(run), "step_ms")
    batch = run.plan.batch
    table["samples_per_s"] = 1e3 * batch / table["step_ms"]
    table["spread_samples_per_s"] = table["samples_per_s"] * table["spread_step_ms"] / table["step_ms"]
    return of_run(table, run, batch=batch)


def memory(run: Run) -> pd.DataFrame:
    """Return the peak MiB of every rank: the setting's knobs, rank, rank_layers, peak_mib (largest over the seeds).

    Empty where the run had no GPU: a process's memory is mostly Python there.
    """
    columns = [*setting_knobs(run), "rank", "rank_layers", "peak_mib"]
    rows = run.rows_with(columns)
    rows = rows[rows["peak_mib"].notna()]
    table = rows.groupby(columns[:-1], sort=False)["peak_mib"].max().reset_index()
    return of_run(table, run)


def by_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return what layers take of each rank's training peak, by `memory` with several numbers of ranks.

    Columns: place ("first", "inner" or "last" rank), mib_per_layer (from the fewest to the most layers), and rest_mib,
    what is left without layers.
    """
    rows = table[table["mode"] == "training"]
    last = rows["rank"] == rows["ranks"] - 1
    place = rows["rank"].eq(0).map({True: "first", False: "inner"}).mask(last, "last")
    peaks = rows.assign(place=place).groupby(["place", "rank_layers"])["peak_mib"].max()
    made = []
    for name in ("first", "inner", "last"):
        of_place = peaks[name]
        few, many = of_place.index.min(), of_place.index.max()
        per_layer = (of_place[many] - of_place[few]) / (many - few)
        made.append((name, per_layer, of_place[few] - few * per_layer))
    return made_from(pd.DataFrame(made, columns=["place", "mib_per_layer", "rest_mib"]), table)


def as_reported(run: Run) -> pd.DataFrame:
    """Return `throughput` of each attention, dropout and mode, with mib_per_gpu: the mean of the GPUs' peaks.

    Without GPUs mib_per_gpu is NaN.
    """
    by = setting_knobs(run)
    peaks = memory(run).groupby(by, sort=False)["peak_mib"].mean().rename("mib_per_gpu")
    return made_from(throughput(run).merge(peaks.reset_index(), on=by, how="left"), throughput(run))


def speedups(table: pd.DataFrame) -> pd.DataFrame:
    """Return, per mode and number of ranks, samples_per_s, speedup over the fewest ranks, limit and share_of_limit.

    The limit is that of equal stages without any cost of communication: see `speedup_limit`.
    """
    parts = []
    for mode, rows in table.groupby("mode", sort=False):
        rows = rows.sort_values("ranks")
        first = rows.iloc[0]
        limits = [
            speedup_limit(mode, first["ranks"], q, m) for q, m in zip(rows["ranks"], rows["micro_batches"], strict=True)
        ]
        gained = rows["samples_per_s"] / first["samples_per_s"]
        parts.append(
            rows[["mode", "ranks", "micro_batches", "samples_per_s", "spread_samples_per_s"]].assign(
                speedup=gained, limit=limits, share_of_limit=gained / limits
            )
        )
    result = pd.concat(parts, ignore_index=True)
    return made_from(result, table)


def balance(run: Run) -> pd.DataFrame:
    """Return, per split and mode, how far the ranks differ in stage time and in memory: std over mean.

    Stage time is what a rank computes in a traced step. Memory is NaN without GPUs.
    """
    spans = run.spans[run.spans["span"].isin(["F", "B", "I", "W"])]
    busy = spans.assign(ms=(spans["end_us"] - spans["start_us"]) / 1e3).groupby(["split", "mode", "rank"], sort=False)[
        "ms"
    ]
    peaks = memory(run).groupby(["split", "mode", "rank"], sort=False)["peak_mib"].max()
    both = pd.DataFrame({"busy_ms": busy.sum(), "peak_mib": peaks.reindex(busy.sum().index)})
    table = both.groupby(["split", "mode"], sort=False).agg(lambda v: v.std(ddof=0) / v.mean()).reset_index()
    table = table.rename(columns={"busy_ms": "stage_time_cv", "peak_mib": "memory_cv"})
    return of_run(table, run)


ERRORS = ["output_error", "loss_error", "gradient_error"]


def equality(run: Run) -> pd.DataFrame:
    """Return the largest errors over the ranks per pipeline of a Trial: by_hand, schedule, split, count; whether equal.

    An error is the largest difference from the unpipelined model as a share of the largest right value; equal is less
    than 0.001, a hundred times what float32 rounding gives (a GPU multiplies a smaller batch in another order).
    """
    columns = ["variant", "schedule", "split", "micro_batches"]
    rows = run.rows_with([*columns, *ERRORS])
    table = rows.groupby(columns, sort=False)[ERRORS].max().reset_index()
    table["by_hand"] = table["variant"] == BY_HAND
    table["equal"] = (table[ERRORS].fillna(0) < 1e-3).all(axis=1)
    return of_run(table, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return, per variant, step_ms (slowest rank) and claimed_ms (its own clock) in whole ms, errors, and what follows.

    `clock_share` is claimed over the whole step's time, in the step where they are farthest apart; `gradient_ratio`
    gradient over right gradient; `lost_parameters` are those of the model that no rank holds.
    """
    rows = run.rows_with(["claimed_ms", *ERRORS])
    rows = rows[~rows["warm_up"].astype(bool)].copy()
    rows["clock_share"] = rows["claimed_ms"] / rows["step_ms"]
    held = rows.groupby(["variant", "rank"], sort=False)["parameters"].first().groupby("variant", sort=False).sum()
    grouped = rows.groupby("variant", sort=False)
    table = grouped.agg(
        claimed_ms=("claimed_ms", "median"),
        **{error: (error, "max") for error in ERRORS},
        gradient_ratio=("gradient_ratio", "median"),
        lost_parameters=("all_parameters", "first"),
        micro_batches=("micro_batches", "first"),
    )
    table.insert(0, "step_ms", run.medians(["variant"], "step_ms").set_index("variant")["step_ms"])
    table.insert(2, "clock_share", grouped["clock_share"].min())
    table["lost_parameters"] -= held
    times = ["step_ms", "claimed_ms"]
    table[times] = table[times].round().astype("Int64")
    table = table.reset_index()
    return of_run(table, run)
