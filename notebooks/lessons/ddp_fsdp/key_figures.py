"""What the node's card shows of lab 04: BERT replicated and sharded, and what replicating costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.key_figures import KeyFigure, Measured, most_per_second, repeats, workers
from labkit.theory.gpt import flop_per_token
from labkit.theory.shapes import elements
from lessons.ddp_fsdp.plan import Strategies

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SHOWN = {"ddp": "DDP", "fsdp_full": "FSDP full"}


def card_plans() -> list[Strategies]:
    """Return what `make card` launches: one seed of one GPU's, DDP's and FSDP's steps with the large batch."""
    usual = Strategies.full() if Strategies.on_gpus() else Strategies.small()
    chosen = {"batches": usual.batches[:1], "strategies": ("single", *_SHOWN), "seeds": (0,), "gpus": usual.gpus}
    return [Strategies.full(**chosen) if Strategies.on_gpus() else Strategies.small(**chosen)]


def _setting(run: Run) -> str:
    plan = run.plan
    return f"batch {plan.batches[0]}, {plan.sequence} tokens, {plan.layers} layers, float32, {workers(run)}"


def _steps(run: Run, strategy: str) -> pd.Series:
    return repeats(run, "step_ms", strategy=strategy, batch=run.plan.batches[0])


def _samples(strategy: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        plan, model = run.plan, run.plan.model
        time = Measured.of(_steps(run, strategy), _setting(run))
        products = elements(model.block) * model.blocks  # an embedding multiplies nothing
        flop = plan.sequence * flop_per_token(products, plan.layers, plan.hidden, plan.sequence)
        return time and time.rate(1e3 * plan.batches[0], most_per_second(run, flop, "float32", plan.gpus))

    return measure


def _efficiency(run: Run) -> Measured | None:
    alone = Measured.of(_steps(run, "single"), "")
    percents = [100 * alone.value / step for step in _steps(run, "ddp")] if alone else []
    return Measured.of(percents, _setting(run), 100)


KEY_FIGURES = (
    *(KeyFigure(f"BERT, {name}", "samples/s", "strategies", _samples(key)) for key, name in _SHOWN.items()),
    KeyFigure("DDP's efficiency over GPUs that exchange nothing", "%", "strategies", _efficiency),
)
