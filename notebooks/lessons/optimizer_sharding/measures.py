"""What matters of lab 11: our sharded update and step beside torch's, and what a rank holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, repeats, workers
from lessons.optimizer_sharding.tables import complete, memory

if TYPE_CHECKING:
    from labkit.engine.run import Run


def step(run: Run, way: str) -> Measured | None:
    plan = run.plan
    times = repeats(run, "ms", way=way, optimizer="adamw", kernel="foreach", part="step")
    return Measured.of(times, f"{plan.layers} layers of {plan.hidden}, foreach, {workers(run)}")


def peak_over_torch(run: Run, kernel: str) -> Measured | None:
    table = memory(run)
    peaks = complete(table[table["kernel"] == kernel]).groupby("way")["peak"].max()
    if not {"sharded", "zero_redundancy", "zero_buckets"} <= {*peaks.index}:
        return None
    return figure(run, peaks["sharded"] / peaks[["zero_redundancy", "zero_buckets"]].min())
