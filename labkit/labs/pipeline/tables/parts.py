"""What the parts of the model take alone → what a stage of any split takes, and which split would be fastest."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.theory.schedules import order_of
from labkit.labs.pipeline.theory.simulator import Times, simulate, step_time, streaming_step
from labkit.labs.pipeline.theory.splits import best_split, every_split, layers_of, named


def parts(run) -> pd.DataFrame:
    """Give, a micro-batch count and part (embedding, layer, head, transfer): forward_ms, backward_ms, transfer_ms.

    Medians over repeats and ranks, warm-ups left out; `samples` are those of one micro-batch.
    """
    rows = run.rows[~run.rows["warm_up"].astype(bool)].reindex(
        columns=["micro_batches", "part", "forward_ms", "backward_ms", "transfer_ms"]
    )
    table = rows.groupby(["micro_batches", "part"], sort=False).median().reset_index()
    table.insert(1, "samples", run.plan.batch // table["micro_batches"])
    table.attrs.update(source=run.source, small=run.plan.size == "small", layers=run.plan.layers)
    return table


def stage_times(table: pd.DataFrame, split: str, micro_batches: int) -> Times:
    """Give the simulator's times (ms) of a split's stages, added up from parts that were measured alone."""
    one = table[table["micro_batches"] == micro_batches].set_index("part")
    sizes, ends = layers_of(split), ("embedding", "head")

    def total(column: str) -> list[float]:
        stages = [size * one.loc["layer", column] for size in sizes]
        for stage, part in zip((0, -1), ends, strict=True):
            stages[stage] += one.loc[part, column]
        return stages

    transfer = one["transfer_ms"].get("transfer", 0.0)
    return Times(total("forward_ms"), total("backward_ms"), transfer=0.0 if pd.isna(transfer) else transfer)


def predicted_ms(table: pd.DataFrame, split: str, micro_batches: int, mode: str = "training") -> float:
    """Give the milliseconds of one GPipe step (or forward only: "fenced", "streaming") that the parts predict."""
    times, ranks = stage_times(table, split, micro_batches), len(layers_of(split))
    if mode == "streaming":
        return streaming_step(ranks, micro_batches, times)
    order = order_of("gpipe" if mode == "training" else "forward_only", ranks, micro_batches)
    return step_time(simulate(order, times))


def splits_ranked(table: pd.DataFrame, stages: int, micro_batches: int = 4) -> pd.DataFrame:
    """Give every split of the layers into `stages` stages with its predicted training step, the fastest first."""
    layers = table.attrs["layers"]
    rows = [(named(cut), predicted_ms(table, named(cut), micro_batches)) for cut in every_split(layers, stages)]
    ranked = pd.DataFrame(rows, columns=["split", "step_ms"]).sort_values("step_ms", kind="stable", ignore_index=True)
    ranked["times_best"] = ranked["step_ms"] / ranked["step_ms"].iloc[0]
    ranked.attrs = dict(table.attrs)
    return ranked


def best(table: pd.DataFrame, stages: int, micro_batches: int = 4) -> str:
    """Give the split with the shortest predicted training step, of all there are."""

    def seconds(cut: list[int]) -> float:
        return predicted_ms(table, named(cut), micro_batches)

    return best_split(table.attrs["layers"], stages, seconds)
