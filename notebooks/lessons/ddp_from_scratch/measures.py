"""What matters of lab 10: the bucketed step beside torch's DDP, the calls that it makes, and whether all is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, figure, repeats, workers
from lessons.ddp_from_scratch.tables import buckets, equality, implementations, overlap

if TYPE_CHECKING:
    from labkit.engine.run import Run

    Shown = Callable[[Run], Measured | None]

_STEPS = {"bucketed": "buckets by hand", "ddp": "torch's DDP"}


def _step(strategy: str) -> Shown:
    def measured(run: Run) -> Measured | None:
        plan = run.plan
        model = f"{plan.layers} layers of {plan.hidden}, {plan.samples} × {plan.sequence} tokens"
        times = repeats(run, "step_ms", strategy=strategy, ranks=plan.gpus)
        return Measured.of(times, f"{model}, {plan.precision}, {workers(run)}")

    return measured


def _over_ddp(read: Callable[[Run], pd.DataFrame]) -> Shown:
    """Return how a run gives the smallest ratio of a bucketed step to torch's DDP."""

    def measured(run: Run) -> Measured | None:
        table = read(run)
        rows = table[(table["strategy"] == "bucketed") & table["over_ddp"].notna()]
        if rows.empty:
            return None
        best = rows.loc[rows["over_ddp"].idxmin()]
        return figure(run, best["over_ddp"], best["spread_over_ddp"])

    return measured


def _unexpected(run: Run) -> Measured:
    """Return how many settings of ours make other calls than theory says."""
    table = overlap(run)
    return figure(run, (~table[table["strategy"] != "ddp"]["equal"].astype(bool)).sum())


def _differing(run: Run) -> Measured:
    return figure(run, (~equality(run)["equal"]).sum())


def _goals(gpus: int) -> tuple[Measure, ...]:
    def goal(name: str, unit: str, plan: str, measured: Shown, most: float, depends_on: str) -> Measure:
        def on_so_many(run: Run) -> Measured | None:
            at_usual_batch = run.plan.samples == type(run.plan).samples or plan == "equality"
            return measured(run) if run.plan.gpus == gpus and at_usual_batch else None

        fields: dict[str, Any] = {"better": LOWER, "comparison": "≤", "on_card": False, "least_gpus": gpus}
        named = f"{name}, {gpus} GPUs"
        return Measure(
            name=named, unit=unit, plan=plan, measured=on_so_many, goal=most, depends_on=depends_on, **fields
        )

    return (
        goal("bucketed's step over torch's DDP's", "×", "implementations", _over_ddp(implementations), 1.03, HOST),
        goal("strategies with unexpected calls", "strategies", "implementations", _unexpected, 0, CODE),
        goal("step of the best size over torch's DDP's", "×", "buckets", _over_ddp(buckets), 1.03, HOST),
        goal("sizes with unexpected calls", "sizes", "buckets", _unexpected, 0, CODE),
        goal("cases that differ from one process", "cases", "equality", _differing, 0, CODE),
    )


MEASURES = (
    *(
        Measure(
            name=f"training step, {name}", unit="ms", plan="implementations", measured=_step(strategy), better=LOWER
        )
        for strategy, name in _STEPS.items()
    ),
    *_goals(2),
    *_goals(4),
)
