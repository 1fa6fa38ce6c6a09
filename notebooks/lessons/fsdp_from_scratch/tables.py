"""Rows of lab 15 → tables: cases, steps and their memory, calls beside the formula, exposed time, a step's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.node import limits
from labkit.provenance import fact, of_run, of_source
from labkit.theory.shapes import elements
from labkit.theory.sizes import GB, MIB
from labkit.theory.step_memory import STATE_BYTES
from lessons.fsdp_from_scratch.theory import (
    ITEMS,
    STAGES,
    ledger,
    padded,
    stage_bytes,
    tokens_to_hide,
    traffic,
    unit_sizes,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["strategy", "unit", "prefetch", "precision"]
_MOMENT = ["t_ms", "base_mib", "activations_mib", "gradients_mib", "optimizer_mib", "temporary_mib", "allocated_mib"]
MOMENT = [*_MOMENT, "reserved_mib", "phase"]
_ERRORS = ["loss_error", "norm_error", "weight_error"]
_ROUNDING, _COARSE = 1e-5, 0.02  # relative; of float32, and of products in bfloat16


def stages(parameters: float, ranks: int) -> pd.DataFrame:
    """Return one row per stage: GB of parameters, gradients and states that a rank holds, and GB that it sends a step.

    AdamW in float32, between two steps; `saved` is of DDP's.
    """
    rows = [{"stage": name} | stage_bytes(stage, parameters, ranks) for stage, name in STAGES.items()]
    table = pd.DataFrame(rows)
    sizes = ["parameters", "gradients", "optimizer", "sent"]
    table[sizes] /= 1e9
    table["held"] = table[sizes[:3]].sum(axis=1)
    table["saved"] = 1 - table["held"] / table["held"].iloc[0]
    return of_source(table, f"theory: {parameters:,.0f} parameters, {ranks} ranks".replace(",", " "))


def cases(run: Run) -> pd.DataFrame:
    """Return one row per case: the ranks' largest errors, bytes of gathered weights left over, whether it is right."""
    rows = run.entries("equality", [*_ERRORS, "held_bytes"])
    table = rows.groupby("case", sort=False)[[*_ERRORS, "held_bytes"]].max().reset_index()
    table["tolerance"] = table["case"].map(lambda case: _COARSE if case == "bfloat16" else _ROUNDING)
    table["right"] = (table[_ERRORS].max(axis=1) <= table["tolerance"]) & (table["held_bytes"] == 0)
    return of_run(table, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: the ranks' largest errors, relative to one process."""
    rows = run.entries("equality", _ERRORS)
    return of_run(rows.groupby("variant", sort=False)[_ERRORS].max().reset_index(), run)


def steps(run: Run) -> pd.DataFrame:
    """Return one row per setting: step_ms, its spread, count and status; the peak, MiB by item, and their sum.

    `over_torch`: over the step of torch's fully_shard with the same units, and its spread; NaN where there is none.
    `gradients_ms` is the step without its update, `longer_ms` by how much that is longer than with nothing sent, with
    the spread of both. `peak` is NaN on a CPU.
    """
    table, plan = _timed(run, SETTING), run.plan
    rows = run.entries("step", [*SETTING, "warm_up", "peak_mib"])
    peak = rows[~rows["warm_up"].astype(bool)].groupby(SETTING, sort=False)["peak_mib"].max().rename("peak")
    table = table.merge(peak.reset_index(), "left", SETTING)
    shown = [
        ledger(plan.shape_of(point), plan.model, point.strategy, point.unit, plan.gpus, point.prefetch)
        for point in table.assign(samples=plan.samples).itertuples()
    ]
    for item in ITEMS:
        table[item] = [items[item] / MIB for items in shown]
    table["predicted"] = table[[*ITEMS]].sum(axis=1)
    table["unexplained_share"] = 1 - table["predicted"] / table["peak"]
    table = _beside_alone(table, "precision")
    torchs = table[table["strategy"] == "torch"].set_index(["precision", "unit"])
    keys = pd.MultiIndex.from_frame(table[["precision", "unit"]])
    theirs, spread = (torchs[name].reindex(keys).to_numpy() for name in ("step_ms", "spread_step_ms"))
    table["over_torch"] = table["step_ms"] / theirs
    table["spread_over_torch"] = (table["spread_step_ms"] + spread * table["over_torch"]) / theirs
    return of_run(table, run, tokens=plan.samples * plan.sequence)


def _timed(run: Run, by: list[str]) -> pd.DataFrame:
    """Return the medians of steps and of their gradients, with spreads."""
    gradients = run.medians(by, "gradients_ms")[[*by, "gradients_ms", "spread_gradients_ms"]]
    return run.medians(by, "step_ms").merge(gradients, "left", by)


def _beside_alone(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the table with `longer_ms`, than the gradients of "alone" with the same `by`, and its spread.

    Updates are left out: who shards nothing updates more weights.
    """
    alone = table[table["strategy"] == "alone"].set_index(by)
    base, spread = (table[by].map(alone[name]) for name in ("gradients_ms", "spread_gradients_ms"))
    longer = {"longer_ms": table["gradients_ms"] - base, "spread_longer_ms": table["spread_gradients_ms"] + spread}
    return table.assign(
        **longer, longer_share=longer["longer_ms"] / base, spread_longer_share=longer["spread_longer_ms"] / base
    )


def ledgers(run: Run) -> pd.DataFrame:
    """Return one row per setting of ours and torch's: MiB that the tensors hold, calls and MiB of a step.

    `equal`: calls and bytes are the formula's, and what is held is 16 bytes a parameter (with padding) over the ranks.
    """
    held = run.entries("memory").drop_duplicates(SETTING).set_index(SETTING)
    sent = run.entries("traffic", [*SETTING, "collective", "calls", "sent_bytes"])
    sent = sent[sent["rank"] == 0].drop_duplicates([*SETTING, "collective"])
    plan, rows = run.plan, []
    for key, group in sent[sent["strategy"].isin(["ours", "torch", "yours"])].groupby(SETTING, sort=False):
        setting = dict(zip(SETTING, key, strict=True))
        due = {each.collective: each for each in traffic(plan.model, setting["unit"], plan.gpus, setting["precision"])}
        counted = group.set_index("collective")
        outermost, others = unit_sizes(plan.model, setting["unit"])
        share = sum(padded(size, plan.gpus) for size in (outermost, *others)) / plan.gpus
        names = ("parameters", "gradients", "optimizer")
        own = sum(held.loc[key, f"{name}_mib"] for name in names)
        by_formula = (4 + 4 + STATE_BYTES) * share / MIB
        row = {"held_mib": own, "held_by_formula": by_formula}
        same = abs(own / by_formula - 1) < 1e-3
        for name, formula in due.items():
            calls, size = counted["calls"].get(name, 0), counted["sent_bytes"].get(name, 0)
            row |= {f"{name} calls": int(calls), f"{name} MiB": size / MIB}
            same &= (calls, size) == (formula.calls, formula.bytes)
        rows.append(setting | row | {"equal": same})
    columns = [*SETTING, "held_mib", "held_by_formula", "equal"]
    return of_run(pd.DataFrame(rows, columns=None if rows else columns), run)


def batches(run: Run) -> pd.DataFrame:
    """Return one row per strategy and batch: tokens per rank, `gradients_ms`, and how much longer than nothing sent.

    `longer_share` is of the gradients' time where nothing is sent. Facts: flop_per_s, of computing in the largest batch
    that sends nothing; link_gb_per_s, a datasheet's, or None; `hidden_from`, the tokens of `tokens_to_hide` with these
    two, NaN without them.
    """
    table, plan = _timed(run, ["strategy", "samples"]), run.plan
    table["tokens"] = table["samples"] * plan.sequence
    table = _beside_alone(table, "samples")
    largest = table[table["strategy"] == "alone"].dropna(subset="gradients_ms").sort_values("tokens").tail(1)
    matrices = plan.layers * elements(plan.model.block) + plan.vocabulary * plan.hidden
    flop_per_s = (6 * matrices * largest["tokens"] / (largest["gradients_ms"] / 1e3)).sum() or float("nan")
    link = limits.ring_bus_limit_gb_per_s(run.datasheet) if run.datasheet else None
    hidden_from = tokens_to_hide(flop_per_s, 1e9 * link, plan.gpus) if link else float("nan")
    return of_run(table, run, flop_per_s=flop_per_s, link_gb_per_s=link, hidden_from=hidden_from)


def timelines(run: Run) -> list[pd.DataFrame]:
    """Return the moments (MOMENT) of rank 0's memory in a step, a table per setting. Facts: `release`, `prefetch`."""
    rows = run.entries("memory timeline", ["rank", "release", "prefetch", *MOMENT])
    return [
        of_run(group[MOMENT].reset_index(drop=True), run, release=bool(release), prefetch=int(prefetch))
        for (release, prefetch), group in rows[rows["rank"] == 0].groupby(["release", "prefetch"], sort=False)
    ]


def peaks(run: Run) -> pd.DataFrame:
    """Return one row per setting of `timelines`: the most GB in use in a step."""
    rows = [
        {
            "release": fact(table, "release"),
            "prefetch": fact(table, "prefetch"),
            "peak_gb": table["allocated_mib"].max() * MIB / GB,
        }
        for table in timelines(run)
    ]
    return of_run(pd.DataFrame(rows, columns=["release", "prefetch", "peak_gb"]), run)
