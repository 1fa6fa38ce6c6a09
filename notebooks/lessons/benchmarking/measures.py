"""What matters of lab 06: products and a training step on the card; how far the clocks and the model may be off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, of_each, on_one, repeats
from labkit.tables.rates import PEAK
from lessons.benchmarking.plan import Products, Soak

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[Products]:
    """Return what `make card` launches: the products."""
    return [Products.full() if Products.on_gpus() else Products.small(gpus=2, warm_ups=2, repeats=7)]


def soak_plan(minutes: int) -> Soak:
    """Return what `make card ARGS="--soak 15"` launches besides."""
    return Soak.full(minutes=minutes)


def product(run: Run, precision: str) -> Measured | None:
    """Return the rate of the GPU that multiplies most slowly while all GPUs multiply."""
    rows, limits = run.rows, run.datasheet
    rows = rows[(rows["precision"] == precision) & ~rows["warm_up"].astype(bool) & (rows["status"] == "ok")]
    if rows.empty:
        return None
    side = int(rows["side"].iloc[0])
    rates = rows.assign(tflops=2 * side**3 / 1e9 / rows["ms"])
    setting = on_one(run, f"{side} × {side}, all at the same time")
    return of_each(run, rates, "tflops", ["rank"], setting, limits and limits.tflops(PEAK[precision]))


def soak(run: Run) -> Measured | None:
    """Return the rate of the GPU that multiplies most slowly in the second half of the time."""
    plan, rows, limits = run.plan, run.rows, run.datasheet
    warm = rows[rows["tflops"].notna() & (rows["at_s"] > plan.minutes * plan.minute_s / 2)]
    setting = on_one(run, f"{plan.side} × {plan.side}, all at the same time")
    return of_each(run, warm, "tflops", ["rank"], setting, limits and limits.tflops("bf16"))


def step(run: Run) -> Measured | None:
    knobs = {"model": "2.7b", "precision": "autocast", "phase": "step", "mode": "compiled_graph"}
    setting = f"{run.plan.samples} × {run.plan.sequence} tokens, compiled, one graph"
    return Measured.of(repeats(run, "ms", **knobs), setting)
