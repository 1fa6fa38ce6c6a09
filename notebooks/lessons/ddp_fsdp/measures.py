"""What matters of lab 04: BERT's rate replicated and sharded, what replicating costs, and whether the ledgers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.measures import Measured, figure, most_per_second, repeats, workers
from labkit.tables.rates import ladder
from labkit.theory.gpt import flop_per_token
from labkit.theory.shapes import elements
from lessons.ddp_fsdp.plan import Strategies

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


def rate(run: Run, strategy: str) -> Measured | None:
    """Return a strategy's samples per second at the larger batch, and what the datasheet allows."""
    plan, model = run.plan, run.plan.model
    time = Measured.of(_steps(run, strategy), _setting(run))
    products = elements(model.block) * model.blocks  # an embedding multiplies nothing
    flop = plan.sequence * flop_per_token(products, plan.layers, plan.hidden, plan.sequence)
    return time and time.rate(1e3 * plan.batches[0], most_per_second(run, flop, "float32", plan.gpus))


def efficiency(run: Run) -> Measured | None:
    alone = Measured.of(_steps(run, "single"), "")
    percents = [100 * alone.value / step for step in _steps(run, "ddp")] if alone else []
    return Measured.of(percents, _setting(run), 100)


def fastest(run: Run) -> Measured | None:
    """Return the ladder's best rate, divided by its first."""
    table = ladder(run)
    rates, spreads = table["samples_per_s"], table["spread_samples_per_s"]
    if len(table) < 2:
        return None
    best, first = table["times_first"].idxmax(), rates.first_valid_index()
    times = table.loc[best, "times_first"]
    return figure(run, times, times * (spreads[best] / rates[best] + spreads[first] / rates[first]))
