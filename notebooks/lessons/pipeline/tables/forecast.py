"""What a step of any split should take: from parts that were timed alone, or from the even split's own spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import fact, made_from, of_run
from lessons.pipeline.tables.throughput import throughput
from lessons.pipeline.tables.timeline import measured_steps, times_of
from lessons.pipeline.theory.schedules import every_split, layers_of, order_of, split_name
from lessons.pipeline.theory.simulator import Times, simulate, step_time

if TYPE_CHECKING:
    from labkit.engine.run import Run


def parts(run: Run) -> pd.DataFrame:
    """Return, per micro-batch count and part (embedding, layer, head, transfer), forward_ms, backward_ms, transfer_ms.

    Medians over repeats and ranks, warm-ups left out; `samples` are those of one micro-batch.
    """
    rows = run.rows[~run.rows["warm_up"].astype(bool)].reindex(
        columns=["micro_batches", "part", "forward_ms", "backward_ms", "transfer_ms"]
    )
    table = rows.groupby(["micro_batches", "part"], sort=False).median().reset_index()
    table.insert(1, "samples", run.plan.batch // table["micro_batches"])
    return of_run(table, run, layers=run.plan.layers)


def _stage_times(table: pd.DataFrame, split: str, micro_batches: int) -> Times:
    """Return the simulator's times (ms) of a split's stages, added up from parts that were measured alone."""
    ms = table[table["micro_batches"] == micro_batches].set_index("part")
    sizes, ends = layers_of(split), ("embedding", "head")

    def total(column: str) -> list[float]:
        stages = [size * ms.loc["layer", column] for size in sizes]
        for stage, part in zip((0, -1), ends, strict=True):
            stages[stage] += ms.loc[part, column]
        return stages

    transfer = ms["transfer_ms"].get("transfer", 0.0)
    return Times(total("forward_ms"), total("backward_ms"), transfer=0.0 if pd.isna(transfer) else transfer)


def _predicted_ms(table: pd.DataFrame, split: str, micro_batches: int) -> float:
    """Return the milliseconds of one GPipe training step that the parts predict."""
    order = order_of("gpipe", len(layers_of(split)), micro_batches)
    return step_time(simulate(order, _stage_times(table, split, micro_batches)))


def splits_ranked(table: pd.DataFrame, stages: int, micro_batches: int = 4) -> pd.DataFrame:
    """Return every split of the layers into `stages` stages with its predicted training step, the fastest first."""
    layers = fact(table, "layers")
    rows = [
        (split_name(cut), _predicted_ms(table, split_name(cut), micro_batches)) for cut in every_split(layers, stages)
    ]
    ranked = pd.DataFrame(rows, columns=["split", "step_ms"]).sort_values("step_ms", kind="stable", ignore_index=True)
    ranked["times_best"] = ranked["step_ms"] / ranked["step_ms"].iloc[0]
    return made_from(ranked, table)


def split_forecast(run: Run) -> pd.DataFrame:
    """Return each split's measured training step_ms, and the forecast_ms that the even split's own spans allow.

    Layer, embedding and head times are read from the traced stages of the most even split; the stages of each other
    split are added up from them and simulated. `ratio` and `forecast_ratio` are over the even split's step; `error`
    compares the two.
    """
    table = throughput(run)
    table = table[table["mode"] == "training"].reset_index(drop=True)
    even = min(table["split"], key=lambda split: max(layers_of(split)))
    times = times_of(measured_steps(run, split=even, mode="training"))
    forecasts = []
    for _, row in table.iterrows():
        other = _recut(times, layers_of(even), layers_of(row["split"]))
        order = order_of(row["schedule"], row["ranks"], row["micro_batches"])
        forecasts.append(step_time(simulate(order, other)))
    base = list(table["split"]).index(even)
    result = table[["split", "mode", "step_ms", "spread_step_ms", "samples_per_s"]].assign(forecast_ms=forecasts)
    result["ratio"] = result["step_ms"] / result["step_ms"].iloc[base]
    result["forecast_ratio"] = result["forecast_ms"] / result["forecast_ms"].iloc[base]
    result["error"] = result["forecast_ratio"] / result["ratio"] - 1
    return of_run(result, run, even=even)


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
