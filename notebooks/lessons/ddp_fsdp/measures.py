"""What matters of lab 04: BERT's rate replicated and sharded, what replicating costs, and whether the ledgers hold."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.ledgers import ERRORS, equality
from labkit.tables.measures import Measured, figure, most_per_second, repeats, workers
from labkit.tables.rates import ladder
from labkit.theory.gpt import flop_per_token
from labkit.theory.shapes import elements
from lessons.ddp_fsdp.plan import Strategies
from lessons.ddp_fsdp.tables import memory, throughput

if TYPE_CHECKING:
    from labkit.engine.run import Run


def card_plans() -> list[Strategies]:
    """Return what `make card` launches: one seed of one GPU's, DDP's and FSDP's steps with the large batch."""
    usual = Strategies.full() if Strategies.on_gpus() else Strategies.small()
    chosen = {
        "batches": usual.batches[:1],
        "strategies": ("single", "ddp", "fsdp_full"),
        "seeds": (0,),
        "gpus": usual.gpus,
    }
    return [Strategies.full(**chosen) if Strategies.on_gpus() else Strategies.small(**chosen)]


def _setting(run: Run) -> str:
    plan = run.plan
    return f"batch {plan.batches[0]}, {plan.sequence} tokens, {plan.layers} layers, float32, {workers(run)}"


def _steps(run: Run, strategy: str) -> pd.Series:
    return repeats(run, "step_ms", strategy=strategy, batch=run.plan.batches[0])


def _rate(run: Run, strategy: str) -> Measured | None:
    """Return a strategy's samples per second at the larger batch, and what the datasheet allows."""
    plan, model = run.plan, run.plan.model
    time = Measured.of(_steps(run, strategy), _setting(run))
    products = elements(model.block) * model.blocks  # an embedding multiplies nothing
    flop = plan.sequence * flop_per_token(products, plan.layers, plan.hidden, plan.sequence)
    return time and time.rate(1e3 * plan.batches[0], most_per_second(run, flop, "float32", plan.gpus))


def _efficiency(run: Run) -> Measured | None:
    alone = Measured.of(_steps(run, "single"), "")
    percents = [100 * alone.value / step for step in _steps(run, "ddp")] if alone else []
    return Measured.of(percents, _setting(run), 100)


def _of_ddp(run: Run, batch: int, column: str) -> Measured | None:
    """Return a figure of DDP from `throughput`, with its spread."""
    table = throughput(run)
    rows = table[(table["strategy"] == "ddp") & (table["batch"] == batch) & table[column].notna()]
    if rows.empty:
        return None
    value, spread = rows[[column, f"spread_{column}"]].iloc[0]
    return Measured(value, value - spread, value + spread, int(rows["count"].iloc[0]), workers(run))


def _fastest(run: Run) -> Measured | None:
    """Return the ladder's best rate, divided by its first; the goal is the full batch's, not a middle size's."""
    table = ladder(run)
    rates, spreads = table["samples_per_s"], table["spread_samples_per_s"]
    if len(table) < 2 or run.plan.size == "middle":
        return None
    best, first = table["times_first"].idxmax(), rates.first_valid_index()
    times = table.loc[best, "times_first"]
    return figure(run, times, times * (spreads[best] / rates[best] + spreads[first] / rates[first]))


def _error(run: Run) -> Measured | None:
    table = equality(run)
    return None if table.empty else figure(run, 1e6 * table[ERRORS].max(axis=None))


FIGURES = {
    "ddp": partial(_rate, strategy="ddp"),
    "fsdp_full": partial(_rate, strategy="fsdp_full"),
    "efficiency": _efficiency,
    "kept_64": partial(_of_ddp, batch=64, column="efficiency"),
    "kept_16": partial(_of_ddp, batch=16, column="efficiency"),
    "unexplained": lambda run: figure(run, 100 * memory(run)["unexplained_share"].abs().max()),
    "fastest": _fastest,
    "ddp_rate": partial(_of_ddp, batch=64, column="samples_per_s"),
    "error": _error,
}
