"""What matters of lab 03: BERT's rate in stages, how far the simulator is off, and what micro-batches change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, figure_of, ratio, repeats, workers
from lessons.pipeline.tables.throughput import ERRORS, equality, speedups, throughput
from lessons.pipeline.tables.timeline import split_forecast

if TYPE_CHECKING:
    from labkit.engine.run import Run


def rate(run: Run, mode: str) -> Measured | None:
    """Return a mode's samples per second on all GPUs of the run."""
    plan = run.plan
    setting = f"batch {plan.batch}, {plan.sequence} tokens, {plan.layers} layers, float32, {workers(run)}"
    time = Measured.of(repeats(run, "step_ms", mode=mode, ranks=plan.gpus), setting)
    return time and time.rate(1e3 * plan.batch)


def best_count(run: Run) -> Measured | None:
    table = throughput(run)
    rates = table[table["mode"] == "training"].set_index("micro_batches")["samples_per_s"]
    return None if run.plan.ranks or rates.empty else figure(run, rates.idxmax())  # all GPUs of the node


def many_over_few(run: Run) -> Measured | None:
    table = throughput(run)
    rates = [figure_of(run, table, "samples_per_s", mode="streaming", micro_batches=count) for count in (16, 4)]
    return None if run.plan.ranks else ratio(*rates)


def share_of_linear(run: Run) -> Measured | None:
    table = speedups(throughput(run))
    rows = table[table["mode"] == "streaming"]
    if len(rows) < 2 or rows["ranks"].iloc[-1] != 4:
        return None
    share = rows["share_of_limit"].iloc[-1]
    return figure(run, share, share * (rows["spread_samples_per_s"] / rows["samples_per_s"]).iloc[[0, -1]].sum())


def forecast_off(run: Run) -> Measured | None:
    table = split_forecast(run).set_index("split")
    if not {"3-3-3-3", "6-2-2-2"} <= set(table.index):
        return None
    rows = table.loc[["3-3-3-3", "6-2-2-2"]]
    noise = (rows["spread_step_ms"] / rows["step_ms"]).sum()
    return figure(run, 100 * rows["error"].iloc[1], 100 * (1 + rows["error"].iloc[1]) * noise)


def error(run: Run) -> Measured:
    table = equality(run)
    return figure(run, 1e6 * table[table["variant"] == "right"][ERRORS].max(axis=None))
