"""What matters of lab 05: the speed of one GPU, what each GPU of several keeps of it, and what the ledgers explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.ledgers import ERRORS, equality
from labkit.tables.measures import Measured, Shown, figure, most_per_second, repeats, workers
from labkit.theory.gpt import flop_per_token, gpt
from lessons.sharding.tables import training

if TYPE_CHECKING:
    from labkit.engine.run import Run

PUBLISHED = 32582  # tokens/s on one GPU, as the report prints
_RUNG = "one graph"


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
        table = training.ladder(run).dropna(subset=["tokens_per_s"])
        table = table[table["knob"].str.startswith("float8") == in_float8]
        if table.empty:
            return None
        best = table.loc[table["tokens_per_s"].idxmax()]
        return figure(run, best["tokens_per_s"] / PUBLISHED, best["spread_tokens_per_s"] / PUBLISHED)

    return measured


def _kept(strategy: str) -> Shown:
    """Return how a run shows which part of one GPU's rate each GPU keeps with the large batch."""

    def measured(run: Run) -> Measured | None:
        table = training.strategies(run)
        chosen = (table["ranks"] == run.plan.gpus) & (table["load"] == "large") & (table["strategy"] == strategy)
        for row in table[chosen].itertuples():
            return figure(run, row.efficiency, row.spread_efficiency)
        return None

    return measured


def _unexplained(run: Run) -> Measured:
    """Return the largest unexplained share of a peak, in percent."""
    return figure(run, 100 * float(training.memory(run)["unexplained_share"].abs().max()))


def _unexplained_batch(run: Run) -> Measured:
    table = training.batches(run).dropna(subset=["peak_mib"])
    return figure(run, 100 * float((1 - table["predicted_mib"] / table["peak_mib"]).abs().max()))


def _unequal(run: Run) -> Measured:
    """Return how many collectives differ from the formula, in calls or in bytes."""
    return figure(run, float((~training.sent(run)["equal"].astype(bool)).sum()))


def _error(run: Run) -> Measured | None:
    table = equality(run)
    return None if table.empty else figure(run, 1e6 * table[ERRORS].max(axis=None))


def _apart(strategy: str) -> Shown:
    """Return how a run shows by how many points the methods differ in the share of hidden communication."""

    def measured(run: Run) -> Measured | None:
        table = training.overlap(run).set_index("strategy")
        return figure(run, table.loc[strategy, "apart_points"]) if strategy in table.index else None

    return measured


FIGURES = {
    "tokens": _tokens,
    "efficiency": _efficiency,
    "over_published": _over_published(in_float8=False),
    "float8_over_published": _over_published(in_float8=True),
    "ddp_kept": _kept("ddp"),
    "fsdp_kept": _kept("fsdp_full"),
    "unexplained_batch": _unexplained_batch,
    "unexplained": _unexplained,
    "unequal": _unequal,
    "error": _error,
    "ddp_apart": _apart("ddp"),
    "fsdp_full_apart": _apart("fsdp_full"),
    "fsdp_grad_apart": _apart("fsdp_grad"),
}
