"""What the node's card shows of lab 09: bus bandwidths of a large message, and the latency of a small one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, message, workers
from lessons.collectives.plan import Sweep
from lessons.collectives.tables import bandwidths

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

_LARGE = ("all-reduce", "all-gather", "all-to-all")


def card_plans() -> list[Sweep]:
    """Return what `make card` launches: a small and a large message, among all GPUs."""
    if not Sweep.on_gpus():
        return [Sweep.small(collectives=_LARGE, sizes_kib=(1, 1024))]
    plan = Sweep.full()
    chosen = {"counts": (plan.gpus,), "backends": ("nccl",), "sizes_kib": (1, 1048576)}
    return [Sweep.full(collectives=_LARGE, **chosen)]


def _row(run: Run, collective: str, clock: str, largest: bool) -> pd.Series | None:
    """Return the row of `bandwidths` for the largest or smallest message among all of the run's workers."""
    table = bandwidths(run)
    chosen = (table["collective"] == collective) & (table["clock"] == clock) & (table["status"] == "ok")
    rows = table[chosen & (table["ranks"] == run.plan.gpus) & (table["backend"] == run.plan.backend)]
    return None if rows.empty else rows.loc[rows["bytes"].idxmax() if largest else rows["bytes"].idxmin()]


def _bus(collective: str) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        row = _row(run, collective, "in flight", largest=True)
        if row is None:
            return None
        rate, setting = row["bus_gb_per_s"], f"{message(row['bytes'])}, {workers(run)}"
        half = rate * row["spread_us"] / row["median_us"]
        return Measured(rate, rate - half, rate + half, int(row["count"]), setting, row["limit"])

    return measure


def _latency(run: Run) -> Measured | None:
    row = _row(run, "all-reduce", "one call", largest=False)
    if row is None:
        return None
    time, half = row["median_us"], row["spread_us"]
    return Measured(
        time, time - half, time + half, int(row["count"]), f"{message(row['bytes'])}, {workers(run)}", math.nan
    )


KEY_FIGURES = (
    *(KeyFigure(f"{name}, bus bandwidth", "GB/s", "sweep", _bus(name)) for name in _LARGE),
    KeyFigure("all-reduce, one small call", "µs", "sweep", _latency, LOWER, by_host=True),
)
