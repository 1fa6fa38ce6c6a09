"""Pipelines that nobody measured: schedules with made-up stage times, as tables to draw."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.tables.timeline import with_waits
from labkit.labs.pipeline.theory.schedules import order_of
from labkit.labs.pipeline.theory.simulator import Times, bubble, in_flight, simulate


def ideal(
    schedule: str,
    ranks: int = 4,
    micro_batches: int = 8,
    *,
    chunks: int = 2,
    ratio: float = 2.0,
    slow: int = -1,
    slowdown: float = 1.0,
    transfer: float = 0.0,
) -> pd.DataFrame:
    """Give a schedule's spans and waits in units of one rank's forward: as `gantt` does, with attrs bubble, in_flight.

    Backward takes `ratio` forwards, half of it for the weights; stage `slow` takes `slowdown` times as long; a transfer
    takes `transfer`. `chunks` counts for interleaved alone, whose stages are as much smaller; in_flight (rank 0) is in
    micro-batches of a whole rank.
    """
    chunks = chunks if schedule == "interleaved" else 1
    stages = range(ranks * chunks)
    forward = [(slowdown if stage % ranks == slow else 1.0) / chunks for stage in stages]
    times = Times(forward, [ratio * time for time in forward], transfer=transfer)
    spans = simulate(order_of(schedule, ranks, micro_batches, chunks), times)
    table = with_waits(spans)
    table.attrs.update(
        source="simulated",
        setting=schedule,
        bubble=bubble(spans),
        in_flight=in_flight(spans, [1 / chunks] * len(stages))[0],
        end=table["end_ms"].max(),
    )
    return table
