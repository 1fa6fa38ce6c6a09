"""What matters of lab 17: the speed of one GPU, and what its memory ledger explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, figure_of, most_per_second, repeats
from labkit.theory.gpt import flop_per_token, gpt
from lessons.one_gpu import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

PUBLISHED = 32582  # tokens/s on one GPU, as the report prints


def _flop_per_token(run: Run) -> float:
    plan = run.plan
    parameters = gpt(plan.layers, plan.hidden, plan.words, plan.sequence).parameters
    return flop_per_token(parameters, plan.layers, plan.hidden, plan.sequence)


def tokens(run: Run, rung: str) -> Measured | None:
    """Return tokens/s at a rung; None of another model than the report's, and where the rung was not taken."""
    rows = run.rows[run.rows["knob"] == rung]
    if rows.empty or not run.plan.of_the_report:
        return None
    batch = int(rows["batch"].iloc[0])
    setting = f"{run.plan.layers} layers, batch {batch}, {run.plan.sequence} tokens, bfloat16, {rung}"
    time = Measured.of(repeats(run, "step_ms", knob=rung), setting)
    limit = most_per_second(run, _flop_per_token(run), "bfloat16")
    return time and time.rate(1e3 * batch * run.plan.sequence, limit)


def over_published(run: Run, in_float8: bool) -> Measured | None:
    """Return how many times the published rate the fastest rung reaches; None of another model than the report's."""
    if not run.plan.of_the_report:
        return None
    table = tables.ladder(run)
    rungs = table[table["knob"].str.startswith("float8") == in_float8].sort_values("tokens_per_s", ascending=False)
    return figure_of(run, rungs, "tokens_per_s", 1 / PUBLISHED)


def unexplained_batch(run: Run) -> Measured:
    table = tables.batches(run).dropna(subset=["peak_mib"])
    return figure(run, 100 * (1 - table["predicted_mib"] / table["peak_mib"]).abs().max())
