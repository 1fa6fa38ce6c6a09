"""Rows → the ledger beside the peak, memory by moment and line, levers, times of the five sizes, and symptoms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import like, of_run
from labkit.tables.profile import MOMENT
from labkit.tables.rows import entries
from lessons.precision_memory.theory.levers import LEVERS, MICRO_BATCHES
from lessons.precision_memory.theory.memory import ITEMS, fullest_moment, ledger, shape_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

MIB = 2**20
_SAME = 0.01  # of a peak
BY = ["precision", "sequence", "phase"]
COUNTED = ("parameters", "gradients", "optimizer", "activations", "copies")


def memory(run: Run) -> pd.DataFrame:
    """Return one row per precision, sequence and phase: MiB by item, their sum `predicted`, the peak, unexplained.

    `moment` is the phase's fullest by formula. The peak is the allocator's; on a CPU it is counted storage by storage.
    `counted_error`: the largest relative difference between an item by formula and as the tensors hold it. A setting
    that ran out of memory has a status that says so, and no peak.
    """
    rows, counted = entries(run, "memory"), entries(run, "counted").set_index("point")
    parts = []
    for row in rows.to_dict("records"):
        shape = shape_of(run.plan, **{name: row[name] for name in ("sequence", "precision")})
        items = {name: size / MIB for name, size in ledger(shape, row["phase"], row["update"]).items()}
        moment = fullest_moment(shape, row["phase"], row["update"])
        known = {name: row[name] for name in BY} | {"moment": moment, **items, "predicted": sum(items.values())}
        error = _counted_error(counted.loc[row["point"]], shape) if row["point"] in counted.index else float("nan")
        parts.append(known | {"peak": row["peak_mib"], "counted_error": error})
    columns = [*BY, "moment", *ITEMS, "predicted", "peak", "counted_error"]
    table = pd.DataFrame(parts, columns=columns)
    table["unexplained"] = table["peak"] - table["predicted"]
    table["unexplained_share"] = table["unexplained"] / table["peak"]
    return of_run(table, run, device=run.plan.device, samples=run.plan.samples)


def _counted_error(counted: pd.Series, shape: Any) -> float:
    whole = 4 * shape.parameters
    due = {"parameters": whole, "gradients": whole, "optimizer": 2 * whole, "activations": shape.kept}
    due |= {"copies": shape.copies} if shape.copies else {}
    return max(abs(counted[f"{name}_mib"] * MIB / size - 1) for name, size in due.items())


def timeline(run: Run, precision: str) -> pd.DataFrame:
    """Return the moments of memory (MOMENT) over the first step and a steady one, in a precision."""
    rows = entries(run, "memory timeline")
    rows = rows[rows["precision"] == precision]
    facts = {"precision": precision, "sequence": run.plan.sequence, "device": run.plan.device}
    return of_run(rows.reindex(columns=MOMENT).reset_index(drop=True), run, **facts)


def allocations(run: Run, precision: str) -> pd.DataFrame:
    """Return the largest allocations of two steps: size_mib, count, phase, line, source; the largest first."""
    rows = entries(run, "allocation")
    rows = rows[rows["precision"] == precision]
    columns = ["size_mib", "count", "phase", "line", "source"]
    return of_run(rows.reindex(columns=columns).astype({"count": int}).reset_index(drop=True), run, precision=precision)


def levers(run: Run) -> pd.DataFrame:
    """Return one row per lever: peak_mib, step_ms with spread, both over the plain step's, and who beats whom.

    `best`: no other lever beats it (see `beaten`); `best_exact`: no other of those that leave the weights float32. A
    lever that did not run has a status and no figures.
    """
    table = run.medians(["lever"], "step_ms")
    peaks = entries(run, "memory").groupby("lever", sort=False)["peak_mib"].max().reset_index()
    table = table.merge(peaks, on="lever", how="left")
    plain = table[table["lever"] == "plain"]
    for ratio, column in (("peak_ratio", "peak_mib"), ("time_ratio", "step_ms")):
        table[ratio] = table[column] / (plain[column].iloc[0] if len(plain) else float("nan"))
    exact = ["weights" not in LEVERS[lever] for lever in table["lever"]]
    table["best"], table["best_exact"] = unbeaten(table), unbeaten(table[exact]).reindex(table.index, fill_value=False)
    facts = {"sequence": run.plan.sequence, "device": run.plan.device}
    return of_run(table, run, **facts)


def unbeaten(table: pd.DataFrame) -> pd.Series:
    """Return for each row with figures whether no other row beats it."""
    best = [pd.notna(row["peak_mib"]) and not beaten(row, table).any() for _, row in table.iterrows()]
    return pd.Series(best, index=table.index, dtype=bool)


def beaten(row: pd.Series, others: pd.DataFrame) -> pd.Series:
    """Return which of the others need less memory and no more time than the row, or less time and no more memory.

    Peaks within 1 %, and times within their spreads, count as equal.
    """
    unsure = others["spread_step_ms"] + row["spread_step_ms"]
    slower, faster = others["step_ms"] - row["step_ms"] > unsure, row["step_ms"] - others["step_ms"] > unsure
    ratio = others["peak_mib"] / row["peak_mib"]
    return ((ratio < 1 - _SAME) & ~slower) | (faster & (ratio <= 1 + _SAME))


def speed(run: Run) -> pd.DataFrame:
    """Return one row per model, phase and precision: ms with spread and count, and `gain`, float32's ms over it.

    `spread_gain` is the half-width of that ratio, of both medians together.
    """
    table = run.medians(["model", "phase", "precision"], "ms")
    plain = table[table["precision"] == "float32"][["model", "phase", "ms", "spread_ms"]]
    table = table.merge(plain, on=["model", "phase"], how="left", suffixes=("", "_float32"))
    table["gain"] = table["ms_float32"] / table["ms"]
    relative = table["spread_ms"] / table["ms"] + table["spread_ms_float32"] / table["ms_float32"]
    table["spread_gain"] = (table["gain"] * relative).where(table["precision"] != "float32", 0.0)
    return of_run(table, run, shrunk=run.plan.shrink > 1)


def published_speed(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the published A100 figures in the columns of `speed`: model, phase, precision, ms, gain."""
    rows = steps[steps["gpu"] == "A100"].assign(ms=1e3 * steps["seconds"])
    table = rows[["model", "phase", "precision", "ms"]].reset_index(drop=True)
    plain = table[table["precision"] == "float32"].set_index(["model", "phase"])["ms"]
    keys = pd.MultiIndex.from_frame(table[["model", "phase"]])
    table["gain"] = plain.reindex(keys).to_numpy() / table["ms"]
    return like(table, steps)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per broken variant: MiB more than the right loop's, and what each bug would hold by formula.

    `extra_peak`, `extra_after_backward`: of the last step; `growth`: held after a step more than after the one before.
    By formula, in MiB: `activations` of a micro-batch, `copies` of the weights, `outputs` of all blocks in a step,
    `metrics`: what the metrics of a step keep.
    """
    rows = entries(run, "trial").set_index("variant")
    shape = shape_of(run.plan, precision="bfloat16")
    due = {
        "activations": shape.kept,
        "copies": shape.copies,
        "outputs": MICRO_BATCHES * shape.layers * shape.tokens * shape.hidden * 4,
        "metrics": MICRO_BATCHES * 2 * shape.tokens * shape.vocabulary * 4,  # probabilities and their logarithms
    }
    table = pd.DataFrame(
        {
            "variant": rows.index,
            "extra_peak": (rows["peak_mib"] - rows.loc["right", "peak_mib"]).to_numpy(),
            "extra_after_backward": (rows["after_backward_mib"] - rows.loc["right", "after_backward_mib"]).to_numpy(),
            "growth": rows["growth_mib"].to_numpy(),
        }
    )
    table = table.assign(**{name: size / MIB for name, size in due.items()})
    return of_run(table[table["variant"] != "right"].reset_index(drop=True), run)


def faults(row: dict) -> list[str]:
    """Return the kinds of fault that a variant's symptoms show."""
    if row["growth"] > 0.5 * row["metrics"]:
        return ["metric_keeps_graph"]
    if row["growth"] > 0.5 * row["outputs"]:
        return ["kept_by_hook"]
    if row["extra_after_backward"] > 0.5 * row["copies"]:
        return ["autocast_around_backward"]
    return ["list_of_losses"] if row["extra_peak"] > 0.5 * row["activations"] else []
