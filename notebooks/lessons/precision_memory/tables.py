"""Rows of lab 07 → tables: sums, casts, gradients and scales; memory by item, levers, symptoms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_run, of_source
from labkit.tables.ledgers import with_unexplained
from labkit.tables.profile import MOMENT
from labkit.theory.sizes import MIB
from labkit.theory.step_memory import ITEMS, ledger
from lessons.precision_memory.plan import MICRO_BATCHES
from lessons.precision_memory.theory.floats import FORMATS, STEPS, VALUE, WAYS, running
from lessons.precision_memory.theory.memory import lever_peak, shape_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

DTYPES = ["what", "float32", "float16", "bfloat16"]
BY = ["precision", "sequence", "phase"]
_EXACT = VALUE * STEPS
_SAME = 0.01  # of a peak


def spacing() -> pd.DataFrame:
    """Return one row per format and power of two in its range: value, spacing, and relative spacing."""
    rows = [
        {"format": name, "value": 2.0**power, "spacing": form.spacing(2.0**power)}
        for name, form in FORMATS.items()
        for power in range(-20, 21)
        if form.least <= 2.0**power <= form.largest
    ]
    table = pd.DataFrame(rows)
    table["relative"] = table["spacing"] / table["value"]
    return of_source(table, "theory: IEEE 754 and its smaller relatives")


def running_sums() -> pd.DataFrame:
    """Return one row per way and term: step, total, and error, the total less step × 0.01; by simulated rounding."""
    rows = [
        {"way": way, "step": step, "total": total, "error": total - VALUE * step}
        for way in WAYS
        for step, total in enumerate(running(way), start=1)
    ]
    return of_source(pd.DataFrame(rows), "theory: simulated rounding")


def sums(run: Run) -> pd.DataFrame:
    """Return one row per way: the total by theory, the total that torch gives, whether they are equal, the error.

    Ways that only theory knows (Kahan, blocks) have no torch total.
    """
    measured = run.entries("sum").set_index("way")["total"]
    rows = []
    for way in WAYS:
        total = running(way)[-1]
        torchs = float(measured.get(way, math.nan))
        equal = None if math.isnan(torchs) else total == torchs
        rows.append({"way": way, "theory": total, "torch": torchs, "equal": equal, "error": total - _EXACT})
    return of_run(pd.DataFrame(rows), run)


def dtypes(run: Run) -> pd.DataFrame:
    """Return one row per tensor of a step, one column per precision: the dtype that it had."""
    rows = run.entries("dtype")
    table = rows.pivot_table(index="what", columns="precision", values="dtype", aggfunc="first", sort=False)
    table = table.reset_index().reindex(columns=DTYPES)
    table.columns.name = None
    return of_run(table, run, device=run.plan.device)


def same_by_hand(run: Run) -> dict[str, bool]:
    """Return by precision whether autocast by hand gave the same tensors and gradients, bit for bit."""
    rows = run.entries("by hand")
    return {} if rows.empty else dict(zip(rows["precision"], rows["same"].astype(bool), strict=True))


def gradients(run: Run) -> pd.DataFrame:
    """Return one row per kind (weights, activations) and exponent: the share of the gradients that has it.

    Facts: `lost`, the share of each kind's nonzero gradients that float16 rounds to 0, and `subnormal`, the share that
    it holds with fewer digits; both by exponent.
    """
    rows = run.entries("histogram")[["of", "exponent", "gradients"]].dropna(subset="exponent")
    table = rows.astype({"exponent": int}).reset_index(drop=True)
    table["share"] = table["gradients"] / table.groupby("of")["gradients"].transform("sum")
    half = FORMATS["float16"]
    least, normal = math.log2(half.least), math.log2(half.least_normal)
    lost, subnormal = {}, {}
    for kind, bins in table.groupby("of", sort=False):
        lost[kind] = float(bins.loc[bins["exponent"] < least - 1, "share"].sum())
        subnormal[kind] = float(bins.loc[bins["exponent"].between(least - 1, normal - 1), "share"].sum())
    return of_run(table, run, lost=lost, subnormal=subnormal)


def scaling(run: Run) -> pd.DataFrame:
    """Return one row per way and step: loss, scale, skipped, and the share of the weights' gradients that are 0."""
    columns = ["way", "step", "loss", "scale", "skipped", "zero_share"]
    table = run.entries("scaled step", columns)[columns].reset_index(drop=True)
    return of_run(table.astype({"step": int, "skipped": bool}), run)


def scales_beside(table: pd.DataFrame) -> pd.DataFrame:
    """Return the scale and the loss of each step by the lesson's Scaler and by torch's GradScaler; takes `scaling`.

    Columns: scale, scale_torch, loss, loss_torch. Empty where the run has only one of the two.
    """
    ours, torchs = (table[table["way"] == f"float16 {name}"] for name in ("scaled", "GradScaler"))
    joined = ours.merge(torchs, on="step", suffixes=("", "_torch"))
    return joined[["step", "scale", "scale_torch", "loss", "loss_torch"]]


def memory(run: Run) -> pd.DataFrame:
    """Return one row per precision, sequence and phase: MiB by item, their sum `predicted`, the peak, unexplained.

    The items are those of the phase's fullest moment. The peak is the allocator's; on a CPU, storages are counted.
    `counted_error`: the largest relative difference between an item by formula and as the tensors hold it. A phase
    that ran out of memory, or would have come after it, has no row. Facts: `failed`, (precision, sequence) → status,
    and the model's `parameters`.
    """
    rows, counted = run.entries("memory"), run.entries("counted").set_index("point")
    parts = []
    for row in rows.to_dict("records"):
        shape = shape_of(run.plan, **{name: row[name] for name in ("sequence", "precision")})
        items = {name: size / MIB for name, size in ledger(shape, row["phase"], row["update"]).items()}
        figures = {name: row[name] for name in BY} | {**items, "predicted": sum(items.values())}
        error = _counted_error(counted.loc[row["point"]], shape) if row["point"] in counted.index else float("nan")
        parts.append(figures | {"peak": row["peak_mib"], "counted_error": error})
    columns = [*BY, *ITEMS, "predicted", "peak", "counted_error"]
    table = with_unexplained(pd.DataFrame(parts, columns=columns))
    failed = run.rows[run.rows["status"] != "ok"].set_index(["precision", "sequence"])["status"].to_dict()
    return of_run(table, run, device=run.plan.device, failed=failed, parameters=run.plan.model.parameters)


def _counted_error(counted: pd.Series, shape: Any) -> float:
    whole = 4 * shape.parameters
    due = {"parameters": whole, "gradients": whole, "optimizer": 2 * whole, "activations": shape.kept}
    due |= {"copies": shape.copies} if shape.copies else {}
    return max(abs(counted[f"{name}_mib"] * MIB / size - 1) for name, size in due.items())


def timeline(run: Run, precision: str) -> pd.DataFrame:
    """Return the moments of memory (MOMENT) over the first step and a steady one, in a precision."""
    rows = run.entries("memory timeline", MOMENT)
    rows = rows[rows["precision"] == precision]
    facts = {"precision": precision, "sequence": run.plan.sequence}
    return of_run(rows[MOMENT].reset_index(drop=True), run, **facts)


def allocations(run: Run, precision: str) -> pd.DataFrame:
    """Return the largest allocations of two steps: size_mib, count, phase, line, source; the largest first.

    Fact `matrix_mib`: the size of a float32 matrix of the SwiGLU.
    """
    columns = ["size_mib", "count", "phase", "line", "source"]
    rows = run.entries("allocation", columns)
    rows = rows[rows["precision"] == precision]
    plan = run.plan
    facts = {"matrix_mib": 4 * plan.hidden * plan.inner / MIB, "precision": precision}
    return of_run(rows[columns].astype({"count": int}).reset_index(drop=True), run, **facts)


def levers(run: Run) -> pd.DataFrame:
    """Return one row per lever: peak_mib, step_ms with spread, both over the plain step's, formula_mib, and `best`.

    `formula_mib`: the peak by formula, of the plain step and of checkpoints alone; NaN for the others. `best`: no other
    lever beats it (see `beaten`). A lever that did not run has a status and no figures. Fact `fullest_at_loss`: whether
    by formula the plain step is fullest at the loss.
    """
    table = run.medians(["lever"], "step_ms")
    peaks = run.entries("memory").groupby("lever", sort=False)["peak_mib"].max().reset_index()
    table = table.merge(peaks, on="lever", how="left")
    plain = table[table["lever"] == "plain"]
    for ratio, column in (("peak_ratio", "peak_mib"), ("time_ratio", "step_ms")):
        table[ratio] = table[column] / (plain[column].iloc[0] if len(plain) else float("nan"))
    shape = shape_of(run.plan, precision="bfloat16")
    table["formula_mib"] = [lever_peak(shape, lever) / MIB for lever in table["lever"]]
    table["best"] = [pd.notna(row["peak_mib"]) and not beaten(row, table).any() for _, row in table.iterrows()]
    fullest_at_loss = not ledger(shape, "steady step")["gradients"]
    return of_run(table, run, sequence=run.plan.sequence, fullest_at_loss=fullest_at_loss)


def beaten(row: pd.Series, others: pd.DataFrame) -> pd.Series:
    """Return which of the others need less memory and no more time than the row, or less time and no more memory.

    Peaks within 1 %, and times within their spreads, count as equal.
    """
    unsure = others["spread_step_ms"] + row["spread_step_ms"]
    slower, faster = others["step_ms"] - row["step_ms"] > unsure, row["step_ms"] - others["step_ms"] > unsure
    ratio = others["peak_mib"] / row["peak_mib"]
    return ((ratio < 1 - _SAME) & ~slower) | (faster & (ratio <= 1 + _SAME))


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per broken variant: MiB more than the right loop's, and what each bug would hold by formula.

    `extra_peak`, `extra_after_backward`: of the last step; `growth`: held after a step more than after the one before.
    By formula, in MiB: `activations` of a micro-batch, `copies` of the weights, `metrics`: what those of a step keep.
    """
    rows = run.entries("trial").set_index("variant")
    shape = shape_of(run.plan, precision="bfloat16")
    due = {
        "activations": shape.kept,
        "copies": shape.copies,
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
    if row["extra_after_backward"] > 0.5 * row["copies"]:
        return ["autocast_around_backward"]
    return ["list_of_losses"] if row["extra_peak"] > 0.5 * row["activations"] else []
