"""Rows of lab 05 → tables: rates, ledgers, accumulation, overlap, projected steps; two strategies kernel by kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from labkit.plans import GptPlan
from labkit.provenance import fact, made_from, of_run
from labkit.tables import ledgers
from labkit.tables.alpha_beta import fits as fits
from labkit.tables.alpha_beta import links as links
from labkit.tables.ledgers import equality as equality
from labkit.tables.profile import MOMENT, at_setting, profile
from labkit.tables.profile import trace_spans as trace_spans
from labkit.tables.published import published
from labkit.tables.rates import strategies as strategies
from labkit.theory.alpha_beta import Link
from labkit.theory.gpt import bytes_per_parameter
from labkit.theory.sizes import MIB
from lessons.sharding.theory import COUNTS, project

if TYPE_CHECKING:
    from labkit.engine.run import Run


_SPREAD = "spread_efficiency"
_BY = ["load", "strategy", "ranks"]


def memory(run: Run, by: list[str] | None = None) -> pd.DataFrame:
    """Return the memory ledger of GPT-2, a row per setting of the columns `by` (default: load, strategy, ranks)."""
    return ledgers.memory(run, by or _BY, GptPlan.forecast)


def sent(run: Run, by: list[str] | None = None) -> pd.DataFrame:
    """Return the communication ledger of GPT-2, a row per setting of the columns `by` and collective."""
    return ledgers.sent(
        run,
        by or _BY,
        lambda plan, row: plan.model(row["vocabulary"]),
        element_bytes=bytes_per_parameter(run.plan.precision)[0],
        micro_batches="micro_batches",
        synced=_synced,
    )


def _synced(row: pd.Series | dict) -> int:
    """Return how often gradients are exchanged in a step."""
    return int(row["micro_batches"]) if row["synced"] == "every" else 1


def accumulation(run: Run) -> pd.DataFrame:
    """Return per number of micro-batches and strategy: step_ms, sent_mib of all collectives, peak_mib, and the saving.

    Columns end in "_every", gradients exchanged after each micro-batch, "_last", once per step, or "_yours", where the
    run has a student's functions.
    """
    by = ["micro_batches", "strategy", "synced"]
    table = run.medians(by, "step_ms")
    rows = run.entries("traffic")
    moved = rows[rows["rank"] == 0].groupby(by)["sent_bytes"].sum().rename("sent_mib") / MIB
    peaks = run.entries("memory", [*by, "peak_mib"]).groupby(by)["peak_mib"].max()
    table = table.join(moved, on=by).join(peaks, on=by)
    columns = ["step_ms", "spread_step_ms", "sent_mib", "peak_mib"]
    wide = table.pivot_table(index=by[:2], columns="synced", sort=False, values=columns, dropna=False)
    result = pd.DataFrame(
        {f"{name}_{synced}": wide[name][synced] for name in columns for synced in sorted({*table["synced"]})}
    )
    result["saved_ms"] = result["step_ms_every"] - result["step_ms_last"]
    result["resolved"] = result["saved_ms"].abs() > result["spread_step_ms_every"] + result["spread_step_ms_last"]
    return of_run(result.reset_index(), run)


def reported(run: Run) -> pd.DataFrame:
    """Return per strategy, as the report ran it: tokens_per_s with spread, speedup over one GPU, peak_mib, mfu.

    `printed_speedup`, `printed_tokens_per_s` (of the printed seconds) and `printed_peak_gb` are the report's, on H100s.
    The fact `small` says whether the model is another than the report's.
    """
    table = strategies(run)
    table["speedup"], table["spread_speedup"] = (table[name] * table["ranks"] for name in ("efficiency", _SPREAD))
    held = run.entries("memory", ["strategy", "peak_mib"])
    table["peak_mib"] = table["strategy"].map(held.groupby("strategy")["peak_mib"].max())
    printed = published("gpt2_strategies").replace({"strategy": {"baseline": "single"}}).set_index("strategy")
    columns = {"printed_speedup": "speedup", "printed_peak_gb": "peak_memory_gb"}
    for name, column in columns.items():
        table[name] = table["strategy"].map(printed[column])
    steps = table["strategy"].map(printed["train_seconds_20_steps"]) / 20
    return made_from(table.assign(printed_tokens_per_s=32 * 1024 / steps), table, small=not run.plan.of_the_report)


def overlap(run: Run) -> pd.DataFrame:
    """Return per strategy: exposed milliseconds of communication by three methods, and the share hidden by each.

    `trace`: kernels during which nothing computes. `steps`: the time of gradients with communication less that without.
    `waits`: what the computing stream waited for, by hooks. Each is subtracted from the trace's communication, and
    `share` is what is left of it. `slowed_ms` is by how much computing took longer than on a rank alone: hidden
    communication is not free. `least_ms` is the communication of the rank that waits least for others.
    """
    profiled = profile(run)
    account = profiled.set_index("strategy")
    medians = {
        name: run.medians(["strategy"], f"{name}_ms").set_index("strategy")[f"{name}_ms"]
        for name in ("muted", "gradients", "waited")
    }
    rows = []
    figures = account.select_dtypes("number")
    moved = figures[figures["communication_ms"] > 0]  # a rank alone sends nothing, whatever its strategy
    for strategy, account_row in moved.drop("single", errors="ignore").iterrows():
        total = account_row["communication_ms"]
        exposed = {
            "trace": account_row["exposed_ms"],
            "steps": medians["gradients"][strategy] - medians["muted"][strategy],
            "waits": medians["waited"][strategy],
        }
        row = {"strategy": strategy, "communication_ms": total, "least_ms": account_row["least_communication_ms"]}
        row |= {f"{name}_ms": ms for name, ms in exposed.items()}
        row |= {f"{name}_share": 1 - ms / total for name, ms in exposed.items()}
        alone = figures.loc["single"] if "single" in figures.index else account_row * float("nan")
        row |= {
            "slowed_ms": account_row["compute_ms"] - alone["compute_ms"],
            "idle_ms": account_row["idle_ms"] - alone["idle_ms"],
        }
        rows.append(row)
    shown = [f"{name}_{kind}" for kind in ("ms", "share") for name in ("trace", "steps", "waits")]
    table = pd.DataFrame(rows, columns=["strategy", "communication_ms", "least_ms", *shown, "slowed_ms", "idle_ms"])
    shares = table[[name for name in shown if name.endswith("_share")]]
    table["apart_points"] = 100 * (shares.max(axis=1) - shares.min(axis=1))
    return of_run(table, run, idle_shares=fact(profiled, "idle_shares"))


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant: micro_batches, update_ratio, update_error, largest_share and exchanges of its trial."""
    columns = ["variant", "micro_batches", "update_ratio", "update_error", "largest_share", "exchanges"]
    rows = run.entries("trial", columns)
    return of_run(rows[rows["rank"] == 0][columns].reset_index(drop=True), run)


_STEP = ["strategy", "ranks", "micro_batch", "micro_batches", "load", "precision", "vocabulary"]
_SHARED = ["micro_batch", "precision", "vocabulary"]  # what the projected steps share with the single GPU's


class _Row(NamedTuple):
    """A projected step: efficiency is over the single GPU's speed, error is predicted over measured, less 1."""

    strategy: str
    gpus: int
    tokens_per_s: float
    efficiency: float
    measured_tokens_per_s: float
    error: float
    exposed_ms: float
    communication_ms: float
    latency_ms: float
    efficiency_at_fixed_alpha: float


def projection(links_run: Run, strategies_run: Run) -> pd.DataFrame:
    """Return one row per strategy and number of GPUs in COUNTS: its speed by `project`, beside the measured one.

    Columns are those of _Row; what was not measured is NaN. How α grows with a ring is the projection's boldest guess:
    in efficiency_at_fixed_alpha α stays as it was.

    Every GPU takes one micro-batch, that of the single GPU's step at load "large", which gives the compute. Lines are
    those fitted at as many ranks, or at the most that were timed. Fact: micro_batch. Raises ValueError where no
    single GPU took such a step, or no line could be fitted.
    """
    single, others = _steps(strategies_run)
    lines = fits(links_run)
    if lines.empty:
        raise ValueError("no collective was timed at two sizes")
    measured = others.set_index(["strategy", "ranks"])["step_ms"]
    rows = [
        _projected(strategies_run.plan, single, lines, strategy, count, measured.get((strategy, count), float("nan")))
        for strategy in others["strategy"].unique()
        for count in COUNTS
    ]
    table = pd.DataFrame(rows, columns=_Row._fields)
    table = of_run(table, strategies_run, micro_batch=int(single["micro_batch"]))
    return made_from(table, table, lines)


def _projected(
    plan: GptPlan, single: pd.Series, lines: pd.DataFrame, strategy: str, count: int, measured_ms: float
) -> _Row:
    """Return the projected step on `count` GPUs from a single one's, beside what was measured on as many."""
    model, compute_s = plan.model(int(single["vocabulary"])), single["step_ms"] / 1e3
    size, _ = bytes_per_parameter(single["precision"])
    fitted_ranks, at_count = _lines_at(lines, count)
    step, fixed = (
        project(model, strategy, count, compute_s, at_count, fitted_ranks=ranks, element_bytes=size)
        for ranks in (fitted_ranks, count)
    )
    tokens, measured_s = count * int(single["micro_batch"]) * plan.sequence, measured_ms / 1e3
    return _Row(
        strategy,
        count,
        tokens_per_s=tokens / step.step_s,
        efficiency=compute_s / step.step_s,
        measured_tokens_per_s=tokens / measured_s,
        error=measured_s / step.step_s - 1,
        exposed_ms=1e3 * step.exposed_s,
        communication_ms=1e3 * step.communication_s,
        latency_ms=1e3 * step.latency_s,
        efficiency_at_fixed_alpha=compute_s / fixed.step_s,
    )


def _steps(run: Run) -> tuple[pd.Series, pd.DataFrame]:
    """Return the single GPU's step of one large micro-batch, and those of the strategies that are alike."""
    steps = run.medians(_STEP, "step_ms")
    steps = steps[(steps["load"] == "large") & (steps["micro_batches"] == 1)]
    single = steps[(steps["strategy"] == "single") & steps["step_ms"].notna()]
    if single.empty:
        raise ValueError("no single GPU took a step of one large micro-batch")
    alike = (steps[_SHARED] == single.iloc[0][_SHARED]).all(axis=1)
    return single.iloc[0], steps[alike & (steps["strategy"] != "single")]


def _lines_at(lines: pd.DataFrame, count: int) -> tuple[int, dict[str, Link]]:
    """Return the number of ranks whose lines serve `count` GPUs, and these lines by collective."""
    fitted_ranks = count if count in set(lines["ranks"]) else int(lines["ranks"].max())
    rows = lines[lines["ranks"] == fitted_ranks]
    return fitted_ranks, {row.collective: Link(row.alpha_us / 1e6, row.beta_gb_per_s) for row in rows.itertuples()}


_SEGMENT = ["segment_mib", "allocated_mib", "largest_free_mib", "segments"]
_SHOWN = 12  # rows of a comparison, the last one included


def operators(run: Run, strategy: str, base: str, **setting: Any) -> pd.DataFrame:
    """Return the kernels of `strategy` beside those of `base`, the largest difference first, ≤ 12 rows.

    Columns: operator, family, calls, base_calls, calls_difference, total_us, base_total_us, difference_us: means over
    ranks, per step; both at `setting`, or at the largest number of ranks that both have. The last row, "all others",
    completes the totals. A kernel that only one side lists counts as 0 on the other, where it took less than the
    least listed one and is among the others.
    """
    columns = ["strategy", "ranks", "point", "operator", "family", "calls", "total_us"]
    rows = at_setting(run.entries("operator", columns), setting)
    sides = [rows[rows["strategy"] == name] for name in (strategy, base)]
    common = set.intersection(*(set(side["ranks"]) for side in sides))
    if not common:
        profiled = rows[["strategy", "ranks"]].drop_duplicates().to_dict("split", index=False)["data"]
        raise ValueError(f"{strategy} and {base} were not profiled on equally many ranks; known are {profiled}")
    compared, base_means = (_mean(side[side["ranks"] == max(common)]) for side in sides)
    table = compared.join(base_means.add_prefix("base_"), how="outer").fillna(0.0).reset_index()
    table["calls_difference"] = table["calls"] - table["base_calls"]
    table["difference_us"] = table["total_us"] - table["base_total_us"]
    table = table[
        ["operator", "family", "calls", "base_calls", "calls_difference", "total_us", "base_total_us", "difference_us"]
    ]
    table = table.sort_values("difference_us", key=lambda us: -us.abs(), kind="stable", ignore_index=True)
    named = table["operator"] != "other"
    shown = table[named].head(_SHOWN - 1)
    others = table.drop(shown.index).sum(numeric_only=True)
    rest = pd.DataFrame([{"operator": "all others", "family": "other", **others}])
    table = pd.concat([shown, rest], ignore_index=True)
    return of_run(table, run, strategy=strategy, base=base, ranks=int(max(common)))


def memory_timeline(run: Run, **setting: Any) -> pd.DataFrame:
    """Return the moments of one rank's memory (MOMENT), rank 0 of the first point that fits `setting`.

    Empty where the run had no GPU. Fact: `setting`, in words.
    """
    return _of_one(run, "memory timeline", MOMENT, setting)


def segments(run: Run, **setting: Any) -> pd.DataFrame:
    """Return the allocator's segments (_SEGMENT) on one rank at the end of the last backward, largest first.

    `segments` is 1, or how many small ones the last row sums. Facts: `setting`, in words; `unused_share`, of all that
    is reserved (nan where there is none).
    """
    table = _of_one(run, "segment", _SEGMENT, setting)
    reserved = table["segment_mib"].sum()
    return made_from(
        table, table, unused_share=1 - table["allocated_mib"].sum() / reserved if reserved else float("nan")
    )


def _mean(rows: pd.DataFrame) -> pd.DataFrame:
    """Return calls and total_us of each kernel, averaged over ranks and points."""
    measured = len(rows[["point", "rank"]].drop_duplicates())
    return rows.groupby(["operator", "family"])[["calls", "total_us"]].sum() / measured


def _of_one(run: Run, entry: str, columns: list[str], setting: dict[str, Any]) -> pd.DataFrame:
    rows = at_setting(run.entries(entry, ["point", "rank", "strategy", "ranks", *columns]), setting)
    rows = rows[(rows["point"] == rows["point"].min()) & (rows["rank"] == 0)]
    return of_run(rows[columns].reset_index(drop=True), run)
