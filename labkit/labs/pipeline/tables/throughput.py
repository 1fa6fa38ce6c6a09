"""Rows → samples a second, memory a rank, and what a mode allows when GPUs are added."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.theory.splits import layers_of
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
