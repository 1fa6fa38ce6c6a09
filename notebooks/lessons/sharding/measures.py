"""What matters of lab 05: the speed of one GPU, what each GPU of several keeps of it, and what the ledgers explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.ledgers import ERRORS, ROUNDING, equality
from labkit.tables.measures import CODE, LOWER, Measure, Measured, figure, most_per_second, repeats, workers
from labkit.theory.gpt import flop_per_token, gpt
from lessons.sharding import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

    Shown = Callable[[Run], Measured | None]

PUBLISHED = 32582  # tokens/s on one GPU, as the report prints
_RUNG = "one graph"
_NAMES = {"ddp": "DDP", "fsdp_full": "FSDP, full", "fsdp_grad": "FSDP, gradient-only"}


def _flop_per_token(run: Run) -> float:
    plan = run.plan
    parameters = gpt(plan.layers, plan.hidden, plan.words, plan.sequence).parameters
    return flop_per_token(parameters, plan.layers, plan.hidden, plan.sequence)


def _tokens(run: Run) -> Measured | None:
    rows = run.rows
    rung = rows[rows["knob"] == _RUNG]
    if rung.empty:
        return None
    batch = int(rung["batch"].iloc[0])
    setting = f"{run.plan.layers} layers, batch {batch}, {run.plan.sequence} tokens, bfloat16, one graph"
    time = Measured.of(repeats(run, "step_ms", knob=_RUNG), setting)
    limit = most_per_second(run, _flop_per_token(run), "bfloat16")
    return time and time.rate(1e3 * batch * run.plan.sequence, limit)


def _efficiency(run: Run) -> Measured | None:
    shared = {"load": "large", "ranks": run.plan.gpus}
    alone = Measured.of(repeats(run, "step_ms", load="large", strategy="single"), "")
    steps = repeats(run, "step_ms", strategy="ddp", **shared)
    setting = f"{run.plan.layers} layers, {run.plan.large} samples per GPU, {workers(run)}"
    return Measured.of([100 * alone.value / step for step in steps] if alone else [], setting, 100)


def _over_published(*, in_float8: bool) -> Shown:
    """Return how a run shows how many times the published rate the fastest rung reaches, in bfloat16 or in float8."""

    def measured(run: Run) -> Measured | None:
        table = tables.ladder(run).dropna(subset=["tokens_per_s"])
        table = table[table["knob"].str.startswith("float8") == in_float8]
        if table.empty:
            return None
        best = table.loc[table["tokens_per_s"].idxmax()]
        return figure(run, best["tokens_per_s"] / PUBLISHED, best["spread_tokens_per_s"] / PUBLISHED)

    return measured


def _kept(strategy: str) -> Shown:
    """Return how a run shows which part of one GPU's rate each GPU keeps with the large batch."""

    def measured(run: Run) -> Measured | None:
        table = tables.strategies(run)
        chosen = (table["ranks"] == run.plan.gpus) & (table["load"] == "large") & (table["strategy"] == strategy)
        for row in table[chosen].itertuples():
            return figure(run, row.efficiency, row.spread_efficiency)
        return None

    return measured


def _unexplained(run: Run) -> Measured:
    """Return the largest unexplained share of a peak, in percent."""
    return figure(run, 100 * float(tables.memory(run)["unexplained_share"].abs().max()))


def _unexplained_batch(run: Run) -> Measured:
    table = tables.batches(run).dropna(subset=["peak_mib"])
    return figure(run, 100 * float((1 - table["predicted_mib"] / table["peak_mib"]).abs().max()))


def _unequal(run: Run) -> Measured:
    """Return how many collectives differ from the formula, in calls or in bytes."""
    return figure(run, float((~tables.sent(run)["equal"].astype(bool)).sum()))


def _error(run: Run) -> Measured | None:
    table = equality(run)
    return None if table.empty else figure(run, 1e6 * table[ERRORS].max(axis=None))


def _apart(strategy: str) -> Shown:
    """Return how a run shows by how many points the methods differ in the share of hidden communication."""

    def measured(run: Run) -> Measured | None:
        table = tables.overlap(run).set_index("strategy")
        return figure(run, table.loc[strategy, "apart_points"]) if strategy in table.index else None

    return measured


def _at(gpus: int, shown: Shown) -> Shown:
    """Return the same of runs on this number of GPUs alone: each number has goals of its own."""
    return lambda run: shown(run) if run.plan.gpus == gpus else None


_GOAL = {"on_card": False, "least_gpus": 1}

MEASURES = (
    Measure(name="GPT-2 Large, one GPU", unit="tokens/s", plan="ladder", measured=_tokens, least_gpus=1),
    Measure(name="GPT-2 Large, DDP's efficiency", unit="%", plan="strategies", measured=_efficiency, least_gpus=2),
    *(
        Measure(
            name=f"one GPU, tokens/s over the published {PUBLISHED}{', float8' if in_float8 else ''}",
            unit="×",
            plan="ladder",
            measured=_over_published(in_float8=in_float8),
            comparison="≥",
            goal=goal,
            **_GOAL,
        )
        for in_float8, goal in ((False, 3.2), (True, 3.25))
    ),
    *(
        Measure(
            name=f"{_NAMES[strategy]}: one GPU's rate kept on {gpus} GPUs",
            unit="×",
            plan="strategies",
            measured=_at(gpus, _kept(strategy)),
            comparison="≥",
            goal=0.95,
            **_GOAL,
        )
        for gpus in (2, 4)
        for strategy in ("ddp", "fsdp_full")
    ),
    Measure(
        name="largest unexplained share of a peak, one GPU",
        unit="%",
        plan="batches",
        measured=_unexplained_batch,
        better=LOWER,
        comparison="≤",
        goal=10,
        depends_on=CODE,
        **_GOAL,
    ),
    *(
        Measure(name=f"{name}, {gpus} GPUs", plan=plan, better=LOWER, depends_on=CODE, **figure, **_GOAL)
        for gpus in (2, 4)
        for name, plan, figure in (
            (
                "largest unexplained share of a peak",
                "strategies",
                {"unit": "%", "measured": _at(gpus, _unexplained), "comparison": "≤", "goal": 10},
            ),
            (
                "collectives that are not the formula's",
                "strategies",
                {"unit": "collectives", "measured": _at(gpus, _unequal), "comparison": "=", "goal": 0},
            ),
            (
                "largest error of losses and updates",
                "trial",
                {"unit": "millionths", "measured": _at(gpus, _error), "comparison": "≤", "goal": 1e6 * ROUNDING},
            ),
        )
    ),
    *(
        Measure(
            name=f"overlap methods apart, {_NAMES[strategy]}",
            unit="points",
            plan="profiles",
            measured=_apart(strategy),
            better=LOWER,
            comparison="≤",
            goal=3,
            reason="none of the methods is the overlap alone: a profiler slows the host, kernels slow each other",
            **_GOAL,
        )
        for strategy in _NAMES
    ),
)
