"""What matters of lab 03: BERT's rate in stages, how far the simulator is off, and what micro-batches change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.measures import CODE, GPU, HOST, LOWER, Measure, Measured, figure, repeats, workers
from lessons.pipeline.tables.forecast import split_forecast
from lessons.pipeline.tables.throughput import ERRORS, equality, speedups, throughput
from lessons.pipeline.tables.timeline import predictions

if TYPE_CHECKING:
    from labkit.engine.run import Run

_MODES = {"training": "training steps", "streaming": "forward only, streaming"}


def _rate(run: Run, mode: str) -> Measured | None:
    """Return a mode's samples per second on all GPUs of the run."""
    plan = run.plan
    setting = f"batch {plan.batch}, {plan.sequence} tokens, {plan.layers} layers, float32, {workers(run)}"
    time = Measured.of(repeats(run, "step_ms", mode=mode, ranks=plan.gpus), setting)
    return time and time.rate(1e3 * plan.batch)


def _prediction(run: Run, schedule: str) -> pd.Series | None:
    table = predictions(run)
    rows = table[(table["schedule"] == schedule) & (table["micro_batches"] == 8)]
    return None if rows.empty else rows.iloc[0]


def _step_off(run: Run, schedule: str) -> Measured | None:
    row = _prediction(run, schedule)
    return None if row is None else figure(run, 100 * row["residual"], 100 * row["spread_residual"])


def _bubble_off(run: Run, schedule: str) -> Measured | None:
    row = _prediction(run, schedule)
    return None if row is None else figure(run, 100 * (row["bubble_simulated"] - row["bubble_measured"]))


def _best_count(run: Run) -> Measured | None:
    table = throughput(run)
    rates = table[table["mode"] == "training"].set_index("micro_batches")["samples_per_s"]
    return None if run.plan.ranks or rates.empty else figure(run, rates.idxmax())  # all GPUs of the node


def _many_over_few(run: Run) -> Measured | None:
    table = throughput(run)
    rows = table[table["mode"] == "streaming"].set_index("micro_batches")
    if run.plan.ranks or not {4, 16} <= set(rows.index):
        return None
    rates = rows["samples_per_s"]
    times = rates[16] / rates[4]
    return figure(run, times, times * (rows["spread_samples_per_s"] / rates)[[4, 16]].sum())


def _share_of_linear(run: Run) -> Measured | None:
    table = speedups(throughput(run))
    rows = table[table["mode"] == "streaming"]
    if len(rows) < 2 or rows["ranks"].iloc[-1] != 4:
        return None
    share = rows["share_of_limit"].iloc[-1]
    return figure(run, share, share * (rows["spread_samples_per_s"] / rows["samples_per_s"]).iloc[[0, -1]].sum())


def _forecast_off(run: Run) -> Measured | None:
    table = split_forecast(run).set_index("split")
    if not {"3-3-3-3", "6-2-2-2"} <= set(table.index):
        return None
    rows = table.loc[["3-3-3-3", "6-2-2-2"]]
    noise = (rows["spread_step_ms"] / rows["step_ms"]).sum()
    return figure(run, 100 * rows["error"].iloc[1], 100 * (1 + rows["error"].iloc[1]) * noise)


def _error(run: Run) -> Measured:
    table = equality(run)
    return figure(run, 1e6 * table[table["variant"] == "right"][ERRORS].max(axis=None))


def _goal(
    name: str, unit: str, plan: str, measured: Callable[..., Measured | None], comparison: str, goal: float, **more: Any
) -> Measure:
    fixed = {"depends_on": HOST, "least_gpus": 2, "on_card": False} | more
    return Measure(name=name, unit=unit, plan=plan, measured=measured, comparison=comparison, goal=goal, **fixed)


MEASURES = (
    *(
        Measure(
            name=f"BERT in stages, {name}",
            unit="samples/s",
            plan="gpus",
            measured=partial(_rate, mode=mode),
            depends_on=HOST if mode == "streaming" else GPU,
        )
        for mode, name in _MODES.items()
    ),
    *(
        _goal(
            f"simulated step off, {schedule}, 8", "%", "schedules", partial(_step_off, schedule=schedule), "within ±", 5
        )
        for schedule in ("gpipe", "1f1b")
    ),
    *(
        _goal(
            f"simulated bubble off, {schedule}, 8",
            "points",
            "schedules",
            partial(_bubble_off, schedule=schedule),
            "within ±",
            5,
        )
        for schedule in ("gpipe", "1f1b", "interleaved", "zero_bubble")
    ),
    _goal("best micro-batch count, training", "micro-batches", "microbatches", _best_count, ">", 4),
    _goal("streaming throughput, 16 over 4 micro-batches", "×", "microbatches", _many_over_few, "<", 1),
    _goal("streaming speed-up over linear, 4 GPUs", "×", "gpus", _share_of_linear, "≥", 0.9, least_gpus=4),
    _goal("6-2-2-2 over 3-3-3-3, forecast off", "%", "splits", _forecast_off, "within ±", 5, least_gpus=4),
    _goal(
        "largest error of outputs, loss, gradients",
        "millionths",
        "trial",
        _error,
        "≤",
        1000,
        better=LOWER,
        depends_on=CODE,
    ),
)
