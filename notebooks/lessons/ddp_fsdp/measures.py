"""What matters of lab 04: BERT's rate replicated and sharded, what replicating costs, and whether the ledgers hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.ledgers import ERRORS, ROUNDING, equality, sent
from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, most_per_second, repeats, workers
from labkit.tables.rates import ladder
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


def _of_ddp(run: Run, batch: int, column: str) -> Measured | None:
    """Return a figure of DDP from `throughput`, with its spread."""
    table = throughput(run)
    rows = table[(table["strategy"] == "ddp") & (table["batch"] == batch) & table[column].notna()]
    if rows.empty:
        return None
    value, spread = rows[[column, f"spread_{column}"]].iloc[0]
    return Measured(value, value - spread, value + spread, int(rows["count"].iloc[0]), workers(run))


def _unexplained(run: Run) -> Measured | None:
    return Measured.of([100 * memory(run)["unexplained_share"].abs().max()], workers(run))


def _unequal(run: Run) -> Measured | None:
    return Measured.of([float((~sent(run)["equal"].astype(bool)).sum())], workers(run))


def _fastest(run: Run) -> Measured | None:
    """Return the ladder's best rate, divided by its first."""
    table = ladder(run)
    rates, spreads = table["samples_per_s"], table["spread_samples_per_s"]
    if len(table) < 2:
        return None
    best, first = table["times_first"].idxmax(), rates.first_valid_index()
    times = table.loc[best, "times_first"]
    spread = times * (spreads[best] / rates[best] + spreads[first] / rates[first])
    return Measured(times, times - spread, times + spread, 1, workers(run))


def _error(run: Run) -> Measured | None:
    table = equality(run)
    return None if table.empty else Measured.of([1e6 * table[ERRORS].max(axis=None)], workers(run))


_AT_LEAST: dict[str, Any] = {"comparison": "≥", "depends_on": HOST, "on_card": False}
_COUNTED: dict[str, Any] = {"comparison": "≤", "better": LOWER, "depends_on": CODE, "on_card": False}


def _goals(gpus: int) -> tuple[Measure, ...]:
    """Return the goals of a run on exactly so many GPUs: their names say the number."""

    def goal(name: str, unit: str, measured: Callable, plan: str = "strategies", **fields: Any) -> Measure:
        def on_so_many(run: Run) -> Measured | None:
            return measured(run) if run.plan.gpus == gpus else None

        return Measure(name=name, unit=unit, measured=on_so_many, plan=plan, least_gpus=gpus, **fields)

    on = f"{gpus} GPUs"
    slow_host = "the recorded host of four GPUs starts a step's kernels half as fast: data/recorded/README.md"
    at_least: dict[str, Any] = _AT_LEAST | {"reason": slow_host if gpus == 4 else ""}
    rates = (
        goal(
            f"DDP's rate ÷ rate alone, {on}, batch {batch}",
            "×",
            partial(_of_ddp, batch=batch, column="efficiency"),
            goal=0.95,
            **at_least,
        )
        for batch in (64, 16)
    )
    return (
        *rates,
        goal(f"largest unexplained share, of 10 peaks, {on}", "%", _unexplained, goal=10, **_COUNTED),
        goal(
            f"collectives that are not the formula's, of 16, {on}",
            "",
            _unequal,
            goal=0,
            **_COUNTED | {"comparison": "="},
        ),
        goal(f"fastest setting ÷ first (float32, unfused AdamW), {on}", "×", _fastest, "knobs", goal=4, **at_least),
    )


MEASURES = (
    *(
        Measure(name=f"BERT, {name}", unit="samples/s", plan="strategies", measured=_rate(strategy))
        for strategy, name in _SHOWN.items()
    ),
    Measure(name="DDP's efficiency over GPUs that exchange nothing", unit="%", plan="strategies", measured=_efficiency),
    *_goals(2),
    *_goals(4),
    Measure(
        name="DDP, float32, batch 64, 4 GPUs",
        unit="samples/s",
        plan="strategies",
        measured=lambda run: _of_ddp(run, 64, "samples_per_s") if run.plan.gpus == 4 else None,
        goal=415,
        least_gpus=4,
        **_AT_LEAST,
    ),
    Measure(
        name="largest error of 4 strategies beside one process",
        unit="millionths",
        plan="trial",
        measured=_error,
        goal=1e6 * ROUNDING,
        least_gpus=2,
        **_COUNTED,
    ),
)
