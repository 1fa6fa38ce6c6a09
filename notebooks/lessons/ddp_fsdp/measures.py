"""What matters of lab 04: BERT's rate replicated and sharded, what replicating costs, and whether the ledgers hold."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.equality import ERRORS, ROUNDING, equality
from labkit.tables.key_figures import LOWER, Measured, most_per_second, repeats, workers
from labkit.tables.ledgers import sent
from labkit.tables.measures import Measure
from labkit.tables.rates import ladder
from labkit.tables.targets import CODE, HOST
from labkit.theory.gpt import flop_per_token
from labkit.theory.shapes import elements
from lessons.ddp_fsdp.plan import Strategies
from lessons.ddp_fsdp.tables import memory, throughput

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


def _rate(strategy: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives a strategy's samples per second at the larger batch, and what the datasheet allows."""

    def measured(run: Run) -> Measured | None:
        plan, model = run.plan, run.plan.model
        time = Measured.of(_steps(run, strategy), _setting(run))
        products = elements(model.block) * model.blocks  # an embedding multiplies nothing
        flop = plan.sequence * flop_per_token(products, plan.layers, plan.hidden, plan.sequence)
        return time and time.rate(1e3 * plan.batches[0], most_per_second(run, flop, "float32", plan.gpus))

    return measured


def _efficiency(run: Run) -> Measured | None:
    alone = Measured.of(_steps(run, "single"), "")
    percents = [100 * alone.value / step for step in _steps(run, "ddp")] if alone else []
    return Measured.of(percents, _setting(run), 100)


def _ddp(gpus: int, batch: int, column: str) -> Callable[[Run], Measured | None]:
    """Return how a run on so many GPUs gives a figure of DDP from `throughput`."""

    def measured(run: Run) -> Measured | None:
        table = throughput(run)
        rows = table[(table["strategy"] == "ddp") & (table["batch"] == batch) & table[column].notna()]
        if run.plan.gpus != gpus or rows.empty:
            return None
        value, spread = rows[[column, f"spread_{column}"]].iloc[0]
        return Measured(value, value - spread, value + spread, int(rows["count"].iloc[0]), workers(run))

    return measured


def _on(gpus: int, figure: Callable[[Run], float]) -> Callable[[Run], Measured | None]:
    """Return how a run on so many GPUs gives a figure that does not vary from repeat to repeat."""

    def measured(run: Run) -> Measured | None:
        value = figure(run) if run.plan.gpus == gpus else float("nan")
        return Measured.of([value], workers(run))

    return measured


def _unexplained(run: Run) -> float:
    return 100 * memory(run)["unexplained_share"].abs().max()


def _unequal(run: Run) -> float:
    return float((~sent(run)["equal"].astype(bool)).sum())


def _fastest(gpus: int) -> Callable[[Run], Measured | None]:
    """Return how a run gives the ladder's best rate, divided by its first."""

    def measured(run: Run) -> Measured | None:
        table = ladder(run)
        if run.plan.gpus != gpus or len(table) < 2:
            return None
        rates, spreads = table["samples_per_s"], table["spread_samples_per_s"]
        best, first = table["times_first"].idxmax(), rates.first_valid_index()
        times = table.loc[best, "times_first"]
        spread = times * (spreads[best] / rates[best] + spreads[first] / rates[first])
        return Measured(times, times - spread, times + spread, 1, workers(run))

    return measured


def _error(run: Run) -> Measured | None:
    table = equality(run)
    return None if table.empty else Measured.of([1e6 * table[ERRORS].max(axis=None)], workers(run))


_OF_STRATEGIES: dict[str, Any] = {"plan": "strategies", "on_card": False}
_AT_LEAST: dict[str, Any] = {"comparison": "≥", "depends_on": HOST}
_COUNTED: dict[str, Any] = {"better": LOWER, "depends_on": CODE}

MEASURES = (
    *(
        Measure(name=f"BERT, {name}", unit="samples/s", plan="strategies", measured=_rate(strategy))
        for strategy, name in _SHOWN.items()
    ),
    Measure(name="DDP's efficiency over GPUs that exchange nothing", unit="%", plan="strategies", measured=_efficiency),
    *(
        Measure(
            name=f"DDP's rate ÷ rate alone, {gpus} GPUs, batch {batch}",
            unit="×",
            measured=_ddp(gpus, batch, "efficiency"),
            goal=0.95,
            least_gpus=gpus,
            **_OF_STRATEGIES,
            **_AT_LEAST,
        )
        for gpus, batch in product((2, 4), (64, 16))
    ),
    Measure(
        name="DDP, float32, batch 64, 4 GPUs",
        unit="samples/s",
        measured=_ddp(4, 64, "samples_per_s"),
        goal=415,
        least_gpus=4,
        **_OF_STRATEGIES,
        **_AT_LEAST,
    ),
    *(
        Measure(
            name=f"largest unexplained share, of 10 peaks, {gpus} GPUs",
            unit="%",
            measured=_on(gpus, _unexplained),
            comparison="≤",
            goal=10,
            least_gpus=gpus,
            **_OF_STRATEGIES,
            **_COUNTED,
        )
        for gpus in (2, 4)
    ),
    *(
        Measure(
            name=f"collectives that are not the formula's, of 16, {gpus} GPUs",
            unit="",
            measured=_on(gpus, _unequal),
            comparison="=",
            goal=0,
            least_gpus=gpus,
            **_OF_STRATEGIES,
            **_COUNTED,
        )
        for gpus in (2, 4)
    ),
    *(
        Measure(
            name=f"fastest setting ÷ first (float32, unfused AdamW), {gpus} GPUs",
            unit="×",
            plan="knobs",
            measured=_fastest(gpus),
            goal=4,
            least_gpus=gpus,
            on_card=False,
            **_AT_LEAST,
        )
        for gpus in (2, 4)
    ),
    Measure(
        name="largest error of 4 strategies beside one process",
        unit="millionths",
        plan="trial",
        measured=_error,
        comparison="≤",
        goal=1e6 * ROUNDING,
        least_gpus=2,
        on_card=False,
        **_COUNTED,
    ),
)
