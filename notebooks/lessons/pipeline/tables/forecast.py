"""What a step of any split should take, from the even split's own spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run
from lessons.pipeline.tables.throughput import throughput
from lessons.pipeline.tables.timeline import measured_steps, times_of
from lessons.pipeline.theory.schedules import every_split, layers_of, order_of, split_name
from lessons.pipeline.theory.simulator import Times, simulate, step_time

if TYPE_CHECKING:
    from labkit.engine.run import Run


def split_forecast(run: Run) -> pd.DataFrame:
    """Return each split's measured training step_ms, and the forecast_ms that the even split's own spans allow.

    Layer, embedding and head times are read from the traced stages of the most even split; the stages of each other
    split are added up from them and simulated. `ratio` and `forecast_ratio` are over the even split's step; `error`
    compares the two. Facts: even, and of all `splits` into as many stages the one that is forecast as the `fastest`.
    """
    table = throughput(run)
    table = table[table["mode"] == "training"].reset_index(drop=True)
    even = min(table["split"], key=lambda split: max(layers_of(split)))
    times = times_of(measured_steps(run, split=even, mode="training"))
    base = list(table["split"]).index(even)
    setting = table.iloc[base]

    def forecast(split: str) -> float:
        sizes = layers_of(split)
        order = order_of(setting["schedule"], len(sizes), setting["micro_batches"])
        return step_time(simulate(order, _recut(times, layers_of(even), sizes)))

    splits = [split_name(cut) for cut in every_split(run.plan.layers, setting["ranks"])]
    forecasts = [forecast(split) for split in table["split"]]
    result = table[["split", "mode", "step_ms", "spread_step_ms", "samples_per_s"]].assign(forecast_ms=forecasts)
    result["ratio"] = result["step_ms"] / result["step_ms"].iloc[base]
    result["forecast_ratio"] = result["forecast_ms"] / result["forecast_ms"].iloc[base]
    result["error"] = result["forecast_ratio"] / result["ratio"] - 1
    return of_run(result, run, even=even, splits=len(splits), fastest=min(splits, key=forecast))


def _recut(times: Times, sizes: list[int], other: list[int]) -> Times:
    """Return the times of a split into `other` from those of one into `sizes`: by layer, the ends' extra work kept."""

    def again(stages) -> list[float]:
        inner = list(zip(stages, sizes, strict=True))
        layer = (
            sum(t for t, _ in inner[1:-1]) / sum(n for _, n in inner[1:-1])
            if len(sizes) > 2
            else min(t / n for t, n in inner)
        )
        cut = [layer * size for size in other]
        cut[0] += stages[0] - layer * sizes[0]
        cut[-1] += stages[-1] - layer * sizes[-1]
        return cut

    return Times(again(times.forward), again(times.backward), transfer=times.transfer, update=times.update)
