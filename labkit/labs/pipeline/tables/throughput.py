"""Rows of lab 03 → tables: samples a second, memory, what parts take alone, trials."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.theory.schedules import best_split, every_split, layers_of, named, order_of
from labkit.labs.pipeline.theory.simulator import Times, simulate, step_time, streaming_step
from labkit.node.limits import check, spec

CORES = {"float32": "fp32", "tf32": "tf32", "bfloat16": "bf16"}  # what the datasheet calls them
SETTING = ["ranks", "split", "schedule", "mode", "precision", "micro_batches"]


def throughput(run) -> pd.DataFrame:
    """Give one row a setting: its knobs, step_ms (median), spread, count, status, samples_per_s, spread_samples_per_s.

    `seed_std` is the standard deviation of samples_per_s over the seeds' medians, as the reports print it (NaN for one
    seed). A step lasts as long as its slowest rank.
    """
    table = run.medians(SETTING, "step_ms")
    batch = run.plan.batch
    table["samples_per_s"] = 1e3 * batch / table["step_ms"]
    table["spread_samples_per_s"] = table["samples_per_s"] * table["spread_step_ms"] / table["step_ms"]
    timed = run.rows[~run.rows["warm_up"].astype(bool)]
    steps = timed.groupby([*SETTING, "seed", "iteration"], sort=False)["step_ms"].max()
    rates = 1e3 * batch / steps.groupby([*SETTING, "seed"], sort=False).median()
    table = table.merge(
        rates.groupby(SETTING, sort=False).std().rename("seed_std").reset_index(), on=SETTING, how="left"
    )
    table.attrs.update(source=run.source, small=run.plan.size == "small", batch=batch, layers=run.plan.layers)
    return table


def precisions(run) -> pd.DataFrame:
    """Give `throughput` with what each GPU computes: tflops_per_gpu, and its verdict beside the datasheet's peak.

    Only the layers' matrix products are counted (see `forward_flop`); backward takes twice the forward's.
    """
    table, plan = throughput(run), run.plan
    steps = table["mode"].map({"streaming": 1, "fenced": 1, "training": 3})
    flop = forward_flop(plan.layers, plan.hidden, plan.sequence) * steps
    known = spec(run.node.gpus[0].name) if plan.device == "cuda" else None
    peaks = {name: known.tflops(short) if known else None for name, short in CORES.items()}
    table = table.assign(
        tflops_per_gpu=table["samples_per_s"] * flop / table["ranks"] / 1e12,
        peak_tflops=table["precision"].map(peaks).astype(float),
    )
    return check(table, "tflops_per_gpu", "peak_tflops")


def forward_flop(layers: int, hidden: int, sequence: int) -> float:
    """Give the FLOP of one sample's forward pass through the layers' matrix products, a multiply-add counted as two.

    A layer has 12·hidden² weights (four projections, two matrices of hidden × 4·hidden), each used once a token, and
    two products of sequence × sequence × hidden in its attention.
    """
    return layers * (24.0 * hidden**2 * sequence + 4.0 * hidden * sequence**2)


def memory(run) -> pd.DataFrame:
    """Give the peak MiB of every rank: the setting's knobs, rank, rank_layers, peak_mib (largest over the seeds).

    Empty where the run had no GPU: a process's memory is mostly Python there.
    """
    columns = [*SETTING, "rank", "rank_layers", "peak_mib"]
    rows = run.rows.reindex(columns=columns)
    rows = rows[rows["peak_mib"].notna()]
    table = rows.groupby(columns[:-1], sort=False)["peak_mib"].max().reset_index()
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


def speedups(table: pd.DataFrame) -> pd.DataFrame:
    """Give, a mode and number of ranks: samples_per_s, speedup over the fewest ranks, and the limit of that speed-up.

    The limit is that of equal stages without any cost of communication. Streaming: as the ranks. Fenced or GPipe
    training with m micro-batches: from p to q ranks (q/p)·(m+p−1)/(m+q−1), for each step has its own bubble.
    """
    parts = []
    for mode, rows in table.groupby("mode", sort=False):
        rows = rows.sort_values("ranks")
        first = rows.iloc[0]
        limits = [
            speedup_limit(mode, first["ranks"], q, m) for q, m in zip(rows["ranks"], rows["micro_batches"], strict=True)
        ]
        gained = rows["samples_per_s"] / first["samples_per_s"]
        parts.append(
            rows[["mode", "ranks", "micro_batches", "samples_per_s", "spread_samples_per_s"]].assign(
                speedup=gained, limit=limits, share_of_limit=gained / limits
            )
        )
    result = pd.concat(parts, ignore_index=True)
    result.attrs = dict(table.attrs)
    return result


def speedup_limit(mode: str, before: int, after: int, micro_batches: int) -> float:
    """Give the largest speed-up from `before` to `after` ranks that the mode allows (see `speedups`)."""
    if mode == "streaming":
        return after / before
    return after / before * (micro_batches + before - 1) / (micro_batches + after - 1)


def split_limit(mode: str, even: str, other: str, micro_batches: int) -> float:
    """Give the throughput of split `other` over that of `even` when all layers take the same and nothing else counts.

    Streaming: the slowest stage sets the pace. Fenced or GPipe training: the m micro-batches go through the slowest
    stage, and the first of them through all others.
    """

    def time(split: str) -> float:
        sizes = layers_of(split)
        return max(sizes) if mode == "streaming" else (micro_batches - 1) * max(sizes) + sum(sizes)

    return time(even) / time(other)


def balance(run) -> pd.DataFrame:
    """Give, a split and mode: the coefficients of variation (std over mean) of stage time and of memory over the ranks.

    Stage time is what a rank computes in a traced step. Memory is NaN without GPUs.
    """
    spans = run.spans[run.spans["span"].isin(["F", "B", "I", "W"])]
    busy = spans.assign(ms=(spans["end_us"] - spans["start_us"]) / 1e3).groupby(["split", "mode", "rank"], sort=False)[
        "ms"
    ]
    peaks = memory(run).groupby(["split", "mode", "rank"], sort=False)["peak_mib"].max()
    both = pd.DataFrame({"busy_ms": busy.sum(), "peak_mib": peaks.reindex(busy.sum().index)})
    table = both.groupby(["split", "mode"], sort=False).agg(lambda v: v.std(ddof=0) / v.mean()).reset_index()
    table = table.rename(columns={"busy_ms": "stage_time_cv", "peak_mib": "memory_cv"})
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


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


ERRORS = ["output_error", "loss_error", "gradient_error"]


def equality(run) -> pd.DataFrame:
    """Give, a schedule, split and micro-batch count of a Trial: the largest errors over the ranks, and whether equal.

    An error is the largest difference from the unpipelined model as a share of the largest right value; equal is less
    than 0.001, a hundred times what float32 rounding gives (a GPU multiplies a smaller batch in another order).
    """
    columns = ["variant", "schedule", "split", "micro_batches"]
    rows = run.rows.reindex(columns=[*columns, *ERRORS])
    table = rows.groupby(columns, sort=False)[ERRORS].max().reset_index()
    table["equal"] = (table[ERRORS].fillna(0) < 1e-3).all(axis=1)
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


def symptoms(run) -> pd.DataFrame:
    """Give, a variant: step_ms (slowest rank), claimed_ms (its own clock), errors, gradient_ratio, lost_parameters.

    `clock_share` is claimed over the slowest rank's time in the step where they are farthest apart; `gradient_ratio`
    gradient over right gradient; `lost_parameters` are those of the model that no rank holds.
    """
    rows = run.rows.reindex(columns=[*run.rows, *({"claimed_ms", *ERRORS} - {*run.rows})])
    rows = rows[~rows["warm_up"].astype(bool)]
    iterations = rows.groupby(["variant", "iteration"], sort=False)
    slowest, share = iterations["step_ms"].max(), iterations["claimed_ms"].max() / iterations["step_ms"].max()
    held = rows.groupby(["variant", "rank"], sort=False)["parameters"].first().groupby("variant", sort=False).sum()
    grouped = rows.groupby("variant", sort=False)
    table = grouped.agg(
        claimed_ms=("claimed_ms", "median"),
        **{error: (error, "max") for error in ERRORS},
        gradient_ratio=("gradient_ratio", "median"),
        lost_parameters=("all_parameters", "first"),
        micro_batches=("micro_batches", "first"),
    )
    table.insert(0, "step_ms", slowest.groupby("variant", sort=False).median())
    table.insert(2, "clock_share", share.groupby("variant", sort=False).min())
    table["lost_parameters"] -= held
    table = table.reset_index()
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table
