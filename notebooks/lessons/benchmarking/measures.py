"""What matters of lab 06: products and a training step on the card; how far the clocks and the model may be off."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, of_each, on_one, repeats
from labkit.tables.rates import PEAK
from lessons.benchmarking.plan import Products, Soak
from lessons.benchmarking.tables import accounts, launches

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[Products]:
    """Return what `make card` launches: the products."""
    return [Products.full() if Products.on_gpus() else Products.small(gpus=2, warm_ups=2, repeats=7)]


def soak_plan(minutes: int) -> Soak:
    """Return what `make card ARGS="--soak 15"` launches besides."""
    return Soak.full(minutes=minutes)


def _product(run: Run, precision: str) -> Measured | None:
    """Return the rate of the GPU that multiplies most slowly while all GPUs multiply."""
    rows, limits = run.rows, run.datasheet
    rows = rows[(rows["precision"] == precision) & ~rows["warm_up"].astype(bool) & (rows["status"] == "ok")]
    if rows.empty:
        return None
    side = int(rows["side"].iloc[0])
    rates = rows.assign(tflops=2 * side**3 / 1e9 / rows["ms"])
    setting = on_one(run, f"{side} × {side}, all at the same time")
    return of_each(run, rates, "tflops", ["rank"], setting, limits and limits.tflops(PEAK[precision]))


def _soak(run: Run) -> Measured | None:
    """Return the rate of the GPU that multiplies most slowly in the second half of the time."""
    plan, rows, limits = run.plan, run.rows, run.datasheet
    warm = rows[rows["tflops"].notna() & (rows["at_s"] > plan.minutes * plan.minute_s / 2)]
    setting = on_one(run, f"{plan.side} × {plan.side}, all at the same time")
    return of_each(run, warm, "tflops", ["rank"], setting, limits and limits.tflops("bf16"))


def _step(run: Run) -> Measured | None:
    knobs = {"model": "2.7b", "precision": "autocast", "phase": "step", "mode": "compiled_graph"}
    setting = f"{run.plan.samples} × {run.plan.sequence} tokens, compiled, one graph"
    return Measured.of(repeats(run, "ms", **knobs), setting)


def _model_error(run: Run) -> Measured:
    table = launches(run)
    return figure(run, 100 * table[table["axis"] == "model"]["error"].abs().max())


def _clocks_apart(run: Run) -> Measured:
    table = accounts(run)
    return figure(run, 100 * table[table["phase"] == "forward"]["apart"].abs().max())


FIGURES = {
    "float32": partial(_product, precision="float32"),
    "tf32": partial(_product, precision="tf32"),
    "bfloat16": partial(_product, precision="bfloat16"),
    "soak": _soak,
    "step": _step,
    "model_error": _model_error,
    "clocks_apart": _clocks_apart,
}
