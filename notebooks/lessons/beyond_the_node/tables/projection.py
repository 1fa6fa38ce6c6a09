"""Lines and published figures → tables: two levels, bytes between nodes, efficiency by link rate, many more GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from labkit.provenance import like, of_source
from labkit.theory.lines import GB
from lessons.beyond_the_node.theory.levels import Levels, Link, least_node_bytes, link_bytes, per_hop
from lessons.beyond_the_node.theory.steps import (
    BITS,
    link_needed,
    predicted_efficiency,
    stalled_share,
    step_link_bytes,
    step_of,
)

_THEORY = "theory: two lines, nothing measured"
_MIB = 2**20
_SIZES_BYTES = tuple(2**exponent for exponent in range(12, 31, 2))
_PER_NODE = 8  # GPUs of a node that the published tables do not name
_WEIGHT_BYTES = 2  # of bfloat16
_CHUNK = 2**21  # draws of the simulation that are held at a time


def hop_line(fits: pd.DataFrame, collective: str = "all-reduce") -> Link:
    """Return the line per hop of a table of fitted lines: columns collective, ranks, alpha_us and beta_gb_per_s.

    It is the line at the most ranks. Raises ValueError where the collective was not fitted.
    """
    rows = fits[fits["collective"] == collective]
    if rows.empty:
        raise ValueError(f"no line was fitted to {collective}; there are {', '.join(fits['collective'].unique())}")
    row = rows.loc[rows["ranks"].idxmax()]
    return per_hop(Link(row["alpha_us"] / 1e6, row["beta_gb_per_s"]), int(row["ranks"]))


def two_levels(
    inside: Link, between: Link, nodes: Sequence[int] = (2, 64), per_node: int = 8, sizes_bytes=_SIZES_BYTES
) -> pd.DataFrame:
    """Return a row per number of nodes, size and method ("flat", "hierarchical") of an all-reduce.

    Columns: nodes, per_node, whole_bytes, method, call_ms, latency_share (of the time, 0 to 1), link_bytes (what a node
    sends to the others). Lines are per hop; `between` is the link that a node's GPUs share.
    """
    rows = []
    for count in nodes:
        levels = Levels(inside, between, count, per_node)
        for size in sizes_bytes:
            for method, seconds in (("flat", levels.flat_s), ("hierarchical", levels.hierarchical_s)):
                sent = link_bytes(method, size, count, per_node)
                rows.append((count, per_node, size, method, 1e3 * seconds(size), seconds(0) / seconds(size), sent))
    columns = ["nodes", "per_node", "whole_bytes", "method", "call_ms", "latency_share", "link_bytes"]
    return of_source(pd.DataFrame(rows, columns=columns), _THEORY)


def link_traffic(
    gradient_bytes: float, nodes: int, per_node: int, accumulation: Sequence[int] = (1, 4), every: int = 100
) -> pd.DataFrame:
    """Return a row per strategy and number of micro-batches: what a node sends to the others per optimizer step.

    Columns: strategy, accumulation, link_mib, times_ddp. "local" averages over `every` steps, a fact.
    """
    whole = step_link_bytes("ddp", gradient_bytes, nodes, per_node)
    sizes = {
        (strategy, count): step_link_bytes(strategy, gradient_bytes, nodes, per_node, count, every)
        for strategy in ("fsdp", "ddp", "hsdp", "local")
        for count in accumulation
    }
    rows = [(*setting, size / _MIB, size / whole) for setting, size in sizes.items()]
    table = pd.DataFrame(rows, columns=["strategy", "accumulation", "link_mib", "times_ddp"])
    return of_source(table, "theory: bytes counted", nodes=nodes, per_node=per_node, every=every)


def by_link_rate(
    compute_s: float,
    gradient_bytes: float,
    nodes: int,
    per_node: int,
    *,
    alpha_s: float = 0.0,
    gbit_per_s: Sequence[float] = tuple(np.geomspace(0.1, 1000, 41)),
    strategies: Sequence[str] = ("fsdp", "ddp", "hsdp"),
    accumulation: Sequence[int] = (1, 4),
    calls: int = 1,
    overlap: float = 0.0,
) -> pd.DataFrame:
    """Return the predicted efficiency by strategy, micro-batches per step and rate of the link between nodes.

    Columns: strategy, accumulation, link_gbit_per_s, efficiency (0 to 1). `compute_s` is one micro-batch's; `calls` and
    `overlap` are those of `predicted_efficiency`.
    """
    rows = []
    for strategy in strategies:
        for count in accumulation:
            for rate in gbit_per_s:
                link, mesh = Link(alpha_s, rate / BITS), (nodes, per_node, count)
                share = predicted_efficiency(
                    strategy, count * compute_s, gradient_bytes, link, *mesh, calls=calls, overlap=overlap
                )
                rows.append((strategy, count, rate, share))
    table = pd.DataFrame(rows, columns=["strategy", "accumulation", "link_gbit_per_s", "efficiency"])
    return of_source(table, _THEORY, nodes=nodes, per_node=per_node, overlap=overlap)


def simulated_slowest(
    ranks: int,
    slowness: Sequence[float] = (1.0,),
    *,
    stall_probability: float = 0.0,
    stall: float = 0.0,
    steps: int = 200,
    seed: int = 0,
) -> float:
    """Return how long the slowest of `ranks` ranks computes, over the median rank: the mean of simulated steps.

    Each rank draws from `slowness` (times over their median), and with `stall_probability` it takes `stall` medians
    longer. Ranks and steps are independent. The same seed gives the same result.
    """
    draws, slowest = np.random.default_rng(seed), []
    each = max(1, _CHUNK // ranks)
    for begin in range(0, steps, each):
        shape = (min(each, steps - begin), ranks)
        times = draws.choice(np.asarray(slowness, dtype=float), shape)
        slowest.append((times + stall * (draws.random(shape) < stall_probability)).max(axis=1))
    return float(np.concatenate(slowest).mean())


def projection(
    inside: Link,
    between: Link,
    compute_s: float,
    gradient_bytes: float,
    *,
    per_node: int = 8,
    gpus: Sequence[int] = (8, 64, 512, 16_384),
    strategies: Sequence[str] = ("ddp", "hierarchical", "tree", "fsdp", "hsdp"),
    accumulation: int = 1,
    calls: int = 1,
    overlap: float = 0.0,
    slowness: Sequence[float] = (1.0,),
    stall_probability: float = 0.0,
    stall: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Return a row per strategy and number of GPUs: efficiency by the two lines, and with simulated stragglers.

    Columns: strategy, gpus, nodes, step_ms, exposed_ms, latency_share (of communication), efficiency, slowest (the
    slowest rank's computing over the median), simulated_efficiency, stalled_share (of steps that a stall hits). Lines
    are per hop, `compute_s` is one micro-batch's; for the rest see `step_of` and `simulated_slowest`.
    """
    rows = []
    for count in gpus:
        levels = Levels(inside, between, max(1, count // per_node), min(count, per_node))
        chance: dict[str, Any] = {"stall_probability": stall_probability, "stall": stall, "seed": seed}
        slowest = simulated_slowest(count, slowness, **chance)
        for strategy in strategies:
            knobs: dict[str, Any] = {"accumulation": accumulation, "calls": calls}
            step = step_of(strategy, levels, compute_s, gradient_bytes, **knobs, overlap=overlap)
            latency_s = step_of(strategy, levels, compute_s, 0.0, **knobs).communication_s
            waited_s = step.step_s + (slowest - 1) * step.compute_s
            times = (1e3 * step.step_s, 1e3 * step.exposed_s, latency_s / (step.communication_s or math.nan))
            shares = (step.efficiency, slowest, step.compute_s / waited_s, stalled_share(stall_probability, count))
            rows.append((strategy, count, levels.nodes, *times, *shares))
    columns = ["strategy", "gpus", "nodes", "step_ms", "exposed_ms", "latency_share", "efficiency", "slowest"]
    table = pd.DataFrame(rows, columns=[*columns, "simulated_efficiency", "stalled_share"])
    return of_source(table, _THEORY, stall_probability=stall_probability, per_node=per_node)


def published_scaling(published: pd.DataFrame) -> pd.DataFrame:
    """Return the printed rows of `mpt_scaling` on two nodes or more, with the link that each needs.

    Added columns: nodes (of 8 GPUs, assumed), step_s, sent_gb (the least that a node sends per step), efficiency (over
    the row with the fewest GPUs), least_gbit_per_s (if all is hidden), unhidden_gbit_per_s (if nothing is hidden and
    the loss is all communication; NaN where there is no loss, or no row of one node with the same micro-batch). Weights
    are bfloat16. FSDP gathers them twice per micro-batch; gradients are scattered at least once per step.
    """
    rows = published.sort_values(["gpu", "parameters", "gpus"], ignore_index=True)
    first = rows.groupby(["gpu", "model"]).transform("first")
    nodes = rows["gpus"] / _PER_NODE
    work = rows["micro_batch"] * rows["accumulation"] * rows["sequence"]
    step_s = work / rows["tokens_per_second_per_gpu"]
    passes = zip(2 * rows["accumulation"] + 1, _WEIGHT_BYTES * rows["parameters"], nodes, strict=True)
    sent = pd.Series([least_node_bytes(*one) for one in passes], index=rows.index)
    same = (rows["micro_batch"] == first["micro_batch"]) & (first["gpus"] == _PER_NODE)
    alone_s = work / first["tokens_per_second_per_gpu"]
    needed = [link_needed(*one) for one in zip(sent, step_s, alone_s.where(same, math.inf), strict=True)]
    table = rows.assign(nodes=nodes.astype(int), step_s=step_s, sent_gb=sent / GB)
    table["efficiency"] = rows["tokens_per_second_per_gpu"] / first["tokens_per_second_per_gpu"]
    table["least_gbit_per_s"] = [one.least_gbit_per_s for one in needed]
    table["unhidden_gbit_per_s"] = [one.unhidden_gbit_per_s for one in needed]
    table["unhidden_gbit_per_s"] = table["unhidden_gbit_per_s"].replace(math.inf, math.nan)
    return like(table[table["nodes"] > 1].reset_index(drop=True), published)
