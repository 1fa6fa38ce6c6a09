"""Numbers → tables: spacing of floats, sums of 0.01, what autocast casts, LayerNorm's error, gradients and scales."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run, of_source
from labkit.tables.rows import entries
from lessons.precision_memory.theory.floats import FORMATS, STEPS, VALUE, WAYS, running

if TYPE_CHECKING:
    from labkit.engine.run import Run

DTYPES = ["what", "float32", "float16", "bfloat16"]
_EXACT = VALUE * STEPS


def spacing(powers: range = range(-20, 21)) -> pd.DataFrame:
    """Return one row per format and power of two in its range: value, spacing, and relative spacing."""
    rows = [
        {"format": name, "value": 2.0**power, "spacing": form.spacing(2.0**power)}
        for name, form in FORMATS.items()
        for power in powers
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
    measured = entries(run, "sum").set_index("way")["total"]
    rows = []
    for way in WAYS:
        total = running(way)[-1]
        torchs = float(measured.get(way, math.nan))
        equal = None if math.isnan(torchs) else total == torchs
        rows.append({"way": way, "theory": total, "torch": torchs, "equal": equal, "error": total - _EXACT})
    return of_run(pd.DataFrame(rows), run)


def dtypes(run: Run) -> pd.DataFrame:
    """Return one row per tensor of a step, one column per precision: the dtype that it had."""
    rows = entries(run, "dtype")
    table = rows.pivot_table(index="what", columns="precision", values="dtype", aggfunc="first", sort=False)
    table = table.reset_index().reindex(columns=DTYPES)
    table.columns.name = None
    return of_run(table, run, device=run.plan.device)


def norms(run: Run) -> pd.DataFrame:
    """Return one row per precision of LayerNorm's statistics, what is varied, and input: relative error, finite."""
    rows = entries(run, "norm")
    columns = ["precision", "varied", "input_size", "error", "finite"]
    return of_run(rows.reindex(columns=columns).reset_index(drop=True), run)


def gradients(run: Run) -> pd.DataFrame:
    """Return one row per kind (weights, activations) and exponent: the share of the gradients that has it.

    Facts: `lost`, the share of each kind's nonzero gradients that float16 rounds to 0, and `subnormal`, the share that
    it holds with fewer digits; both by exponent.
    """
    rows = entries(run, "histogram")[["of", "exponent", "gradients"]].dropna(subset="exponent")
    table = rows.astype({"exponent": int}).reset_index(drop=True)
    table["share"] = table["gradients"] / table.groupby("of")["gradients"].transform("sum")
    half = FORMATS["float16"]
    least, normal = math.log2(half.least), math.log2(half.least_normal)
    lost, subnormal = {}, {}
    for kind, own in table.groupby("of", sort=False):
        lost[kind] = float(own.loc[own["exponent"] < least - 1, "share"].sum())
        subnormal[kind] = float(own.loc[own["exponent"].between(least - 1, normal - 1), "share"].sum())
    return of_run(table, run, lost=lost, subnormal=subnormal)


def scaling(run: Run) -> pd.DataFrame:
    """Return one row per way and step: loss, scale, skipped, and the share of the weights' gradients that are 0."""
    columns = ["way", "step", "loss", "scale", "skipped", "zero_share"]
    table = entries(run, "scaled step").reindex(columns=columns).reset_index(drop=True)
    return of_run(table.astype({"step": int, "skipped": bool}), run)
