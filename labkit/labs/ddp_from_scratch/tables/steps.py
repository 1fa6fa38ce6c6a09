"""Rows of timed steps → each strategy's step and its parts, beside the step that sends nothing and torch's DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.labs.ddp_from_scratch.theory import MIB, messages
from labkit.node import limits
from labkit.provenance import of_run
from labkit.tables.profile import profile as profile
from labkit.tables.profile import trace_spans as trace_spans
from labkit.tables.rows import entries
from labkit.theory.traffic import Sent, through_a_link

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["strategy", "bucket_mb"]
_ALIKE = 0.05  # peaks of memory that differ by no more are one peak
_PARTS = ["forward_ms", "backward_ms", "waited_ms", "optimizer_ms"]


def implementations(run: Run) -> pd.DataFrame:
    """Return one row per setting: its step, the parts of it, what sending adds, its memory, and how far it is from DDP.

    Columns: strategy, bucket_mb, step_ms (median over rounds, the slowest rank's), spread_step_ms, count, status; PARTS
    (medians over ranks and rounds: `waited_ms` goes from the last gradient until all are averaged); `exposed_ms`, the
    step over the one that sends nothing, its spread, and as a share of the step; `hidden_share`, the part of naive's
    exposed time that is not exposed here; peak_mib (the fullest rank's; NaN on a CPU, and
    where ranks and rounds differ by more than ALIKE: it is no property of the strategy then) and `extra_mib`, over that
    of "none"; `over_ddp`, the step over DDP's, its spread, and whether the two are resolved. What a run has no base for
    is NaN.
    """
    table = run.medians(SETTING, "step_ms")
    rows = _timed(run)
    parts = rows.groupby(SETTING, sort=False)[_PARTS].median()
    peaks = rows.reindex(columns=[*SETTING, "peak_mib"]).groupby(SETTING, sort=False)["peak_mib"]
    parts["peak_mib"] = peaks.max().where(peaks.max() <= (1 + _ALIKE) * peaks.min())
    table = table.merge(parts.reset_index(), on=SETTING, how="left")
    none, naive, ddp = (base(table, name) for name in ("none", "naive", "ddp"))
    table["exposed_ms"] = table["step_ms"] - none["step_ms"]
    table["spread_exposed_ms"] = table["spread_step_ms"] + none["spread_step_ms"]
    table["exposed_share"] = table["exposed_ms"] / table["step_ms"]
    table["hidden_share"] = 1 - table["exposed_ms"] / (naive["step_ms"] - none["step_ms"])
    table.loc[table["strategy"] == "none", "hidden_share"] = float("nan")
    table["extra_mib"] = table["peak_mib"] - none["peak_mib"]
    table["over_ddp"] = table["step_ms"] / ddp["step_ms"]
    table["spread_over_ddp"] = (table["spread_step_ms"] + ddp["spread_step_ms"] * table["over_ddp"]) / ddp["step_ms"]
    table["resolved"] = (table["over_ddp"] - 1).abs() > table["spread_over_ddp"]
    return of_run(table, run)


def _timed(run: Run) -> pd.DataFrame:
    """Return the rows of steps that count."""
    needed = ["entry", "warm_up", *SETTING, *_PARTS]
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, *needed])])
    return rows[(rows["entry"] == "step") & ~rows["warm_up"].astype(bool)]


def base(table: pd.DataFrame, strategy: str) -> pd.Series:
    """Return the row of a strategy to hold others against; all NaN where the run has none."""
    found = table[table["strategy"] == strategy]
    return found.iloc[0] if len(found) else pd.Series(float("nan"), index=table.columns)


_COUNTS = ["collectives", "during_backward", "before_last_gradient", "gradients", "gradients_after_first"]


def overlap(run: Run) -> pd.DataFrame:
    """Return one row per setting: what rank 0 called in one step, and when, beside what theory has it call.

    Columns: strategy, bucket_mb; collectives, those called before backward was over, and those called while a gradient
    was still to come; gradients, and those that came after the first collective; `due` collectives; sent_mib and
    due_mib; largest_mib and last_mib of one collective; `equal`: count and sizes are theory's (torch's DDP orders its
    buckets as its first backward went, not by the model's order: of it, count and sum).
    """
    plan: Any = run.plan
    rows = entries(run, "sent").reindex(columns=["rank", *SETTING, *_COUNTS, "sizes_bytes"])
    rows = rows[rows["rank"] == 0].drop_duplicates(SETTING)
    parts = []
    for row in rows.to_dict("records"):
        due, sizes = messages(plan.model, row["strategy"], row["bucket_mb"]), list(row["sizes_bytes"])
        same = (len(sizes), sum(sizes)) == (len(due), sum(due)) if row["strategy"] == "ddp" else sizes == due
        parts.append(
            {
                **{name: row[name] for name in SETTING},
                **{name: int(row[name]) for name in _COUNTS},
                "due": len(due),
                "sent_mib": sum(sizes) / MIB,
                "due_mib": sum(due) / MIB,
                "largest_mib": max(sizes, default=0) / MIB,
                "last_mib": sizes[-1] / MIB if sizes else 0.0,
                "equal": same,
            }
        )
    columns = [*SETTING, *_COUNTS, "due", "sent_mib", "due_mib", "largest_mib", "last_mib", "equal"]
    return of_run(pd.DataFrame(parts, columns=columns), run)


def sending(run: Run) -> pd.DataFrame:
    """Give, for the strategies that send after backward, the rate at which they did, beside what the links allow.

    Columns: strategy, link_mib (what a ring sends through a link), waited_ms, bus_gb_per_s, limit, share_of_limit,
    verdict; least_ms is what the link alone needs. Flat's time has its two copies in it.
    """
    plan: Any = run.plan
    table = implementations(run)
    table = table[table["strategy"].isin(["naive", "flat"])][["strategy", "waited_ms"]].reset_index(drop=True)
    whole = sum(messages(plan.model, "flat"))
    link = through_a_link([Sent("all-reduce", 1, whole)], run.plan.gpus)
    known = limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    rate = limits.bus_bandwidth_limit(known, run.plan.gpus, "any")
    table["link_mib"] = link / MIB
    table["bus_gb_per_s"] = link / table["waited_ms"] / 1e6
    table["least_ms"] = 1e3 * limits.least_seconds_to_move(link, rate)
    return of_run(limits.against_limit(table, "bus_gb_per_s", rate), run)


_ERRORS = ["gradient_error", "weight_error", "buffer_error", "apart"]
_MEANING = {
    "plain": "every rank made other weights; rank 0's count",
    "tied": "one weight in two places: its gradient is their sum, and is sent once",
    "frozen": "weights that need no gradient are not sent",
    "unused": "a layer that no forward calls keeps no gradient",
    "unused_on_some": "a weight without a gradient on one rank counts as zero there",
    "buffers": "a running mean follows rank 0's samples; all ranks take it over after each step",
    "accumulation": "two micro-batches, the first under no_sync",
    "two_backwards": "two backwards, both exchanged, before one step",
    "kept_gradients": "gradients are never cleared: they add up over the steps",
    "uneven": "ranks have unequally many samples: the mean of the ranks' means",
    "weighted": "the same, losses scaled by their shares: the mean over all samples",
    "no_samples": "the last rank has no samples and calls finish alone",
    "bfloat16": "weights and gradients in bfloat16",
    "mixed": "some weights in bfloat16, the others in float32",
}
# float32 rounds to 6e-8 and bfloat16 to 4e-3, a few times in a row.
_TOLERANCES = {"bfloat16": 2e-2, "mixed": 2e-2}
_TOLERANCE = 1e-5


def equality(run: Run) -> pd.DataFrame:
    """Return one row per case and strategy: the worst errors over ranks and seeds, and whether all are in tolerance.

    Columns: case, strategy, ERRORS, none_right (no rank has a gradient where one process has none, nor lacks one),
    tolerance, equal. Ranks may not differ at all.
    """
    rows = entries(run, "equality").reindex(columns=["case", "strategy", *_ERRORS, "none_right"])
    groups = rows.groupby(["case", "strategy"], sort=False)
    table = groups[_ERRORS].max().join(groups["none_right"].min().astype(bool)).reset_index()
    table["tolerance"] = table["case"].map(_TOLERANCES).fillna(_TOLERANCE)
    close = table[_ERRORS[:3]].le(table["tolerance"], axis=0).all(axis=1)
    table["equal"] = close & (table["apart"] == 0) & table["none_right"]
    return of_run(table, run)


def cases(run: Run) -> pd.DataFrame:
    """Return one row per case: its meaning, its largest error over strategies, its tolerance, and whether all hold."""
    table = equality(run)
    table["worst_error"] = table[_ERRORS].max(axis=1)
    how = {"worst_error": "max", "tolerance": "first", "equal": "all", "strategy": "nunique"}
    found = table.groupby("case", sort=False).agg(how).reset_index().rename(columns={"strategy": "strategies"})
    found.insert(1, "meaning", found["case"].map(_MEANING))
    return of_run(found, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: how far its gradients are from the right ones, and what it sent.

    Columns: variant, ranks; `error_rank_0`, all that a test on rank 0 sees, `error_worst` over all ranks, and
    `error_later`, the worst once everything has arrived; `ratio` along the right gradients on rank 0; `start_apart`,
    the weights' worst difference from rank 0's; collectives and `due`, as many as the bucket size asks for;
    largest_mib, bucket_mb, and before_last_gradient, the collectives called while a gradient was still to come.
    """
    plan: Any = run.plan
    rows = entries(run, "trial")
    parts = []
    for variant, group in rows.groupby("variant", sort=False):
        first = group[group["rank"] == 0].iloc[0]
        parts.append(
            {
                "variant": variant,
                "ranks": int(first["ranks"]),
                "error_rank_0": first["error"],
                "error_worst": group["error"].max(),
                "error_later": group["later_error"].max(),
                "ratio": first["ratio"],
                "start_apart": group["start_apart"].max(),
                "collectives": int(first["collectives"]),
                "due": len(messages(plan.model, "bucketed", first["bucket_mb"])),
                "largest_mib": max(first["sizes_bytes"]) / MIB,
                "bucket_mb": first["bucket_mb"],
                "before_last_gradient": int(first["before_last_gradient"]),
            }
        )
    return of_run(pd.DataFrame(parts), run)
