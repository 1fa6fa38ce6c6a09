"""Rows, lines and published figures → tables: messages, steps and trainings over two nodes, and what theory says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.provenance import made_from, of_run, of_source
from labkit.theory.alpha_beta import fit
from labkit.theory.shapes import elements
from labkit.theory.sizes import GB, MIB
from labkit.theory.traffic import ring_bytes
from lessons.beyond_the_node.theory import (
    BITS,
    GATHERS,
    GLOO_SCATTERS,
    SCATTERS,
    Levels,
    Link,
    least_node_bytes,
    link_bytes,
    link_needed,
    needed_gbit_per_s,
    per_hop,
    stalled_share,
    step_link_bytes,
    step_of,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

_MESSAGE = ["place", "link_mbit", "kib"]
_STEP = ["strategy", "link_mbit", "accumulation", "bucket_mb"]
_BACKWARD = 2 / 3  # of a micro-batch's computing
OVERLAPS = {"ddp": _BACKWARD, "fsdp": 1.0, "hsdp": 1.0}  # the most of a micro-batch during which bytes may travel


def gb_per_s(link_mbit: float) -> float:
    """Return a rate in Mbit/s in GB/s; NaN for 0, a link that is not shaped."""
    return link_mbit / 1e3 / BITS if link_mbit else math.nan


def _mesh(run: Run) -> tuple[int, int]:
    """Return how many nodes the run had, and how many ranks on each."""
    return run.node_count, run.plan.gpus // run.node_count


def _counted(run: Run, by: list[str]) -> pd.DataFrame:
    """Return the median of what a node has sent, per setting, in bytes with their packets' headers."""
    rows = run.rows[~run.rows["warm_up"].astype(bool)].dropna(subset="sent_bytes")
    return rows.groupby(by, sort=False)["sent_bytes"].median().rename("counted_bytes").reset_index()


def messages(run: Run) -> pd.DataFrame:
    """Return one row per place, rate of the link and size of an all-reduce.

    Columns: place, link_mbit (0: not shaped), kib, call_ms, spread_call_ms, count, status, whole_bytes, link_bytes
    (what a node sends to the others, by theory), counted_bytes (what its interface has sent, headers included).
    """
    nodes, per_node = _mesh(run)
    table = run.medians(_MESSAGE, "seconds").rename(columns={"seconds": "call_ms", "spread_seconds": "spread_call_ms"})
    table[["call_ms", "spread_call_ms"]] *= 1e3
    table["whole_bytes"] = 1024 * table["kib"]
    pairs = zip(table["place"].replace("yours", "hierarchical"), table["whole_bytes"], strict=True)
    table["link_bytes"] = [link_bytes(place, size, nodes, per_node) for place, size in pairs]
    return of_run(table.merge(_counted(run, _MESSAGE), on=_MESSAGE, how="left"), run)


def two_lines(run: Run) -> pd.DataFrame:
    """Return the line of an all-reduce inside a node, and one between nodes per rate of the link.

    Columns: place, link_mbit, collective, ranks, alpha_us, beta_gb_per_s (a bus bandwidth), residual, shaped_gb_per_s
    (the rate that was set), share_of_rate and its spread, that of the largest message's time.
    """
    nodes, per_node = _mesh(run)
    ranks_of = {"inside": per_node, "between": nodes}
    table, rows = messages(run), []
    for (place, rate), group in table[table["place"].isin(ranks_of)].groupby(["place", "link_mbit"], sort=False):
        measured = group.dropna(subset="call_ms")
        if len(measured) < 2:
            continue
        ranks, largest = ranks_of[str(place)], measured.loc[measured["kib"].idxmax()]
        line = fit(ring_bytes(measured["whole_bytes"], ranks), measured["call_ms"] / 1e3)
        share, spread = line.beta_gb_per_s / gb_per_s(rate), largest["spread_call_ms"] / largest["call_ms"]
        figures = (1e6 * line.alpha_s, line.beta_gb_per_s, line.residual, gb_per_s(rate), share, share * spread)
        rows.append((place, rate, "all-reduce", ranks, *figures))
    names = ["alpha_us", "beta_gb_per_s", "residual", "shaped_gb_per_s", "share_of_rate", "spread_share_of_rate"]
    columns = ["place", "link_mbit", "collective", "ranks", *names]
    return of_run(pd.DataFrame(rows, columns=columns), run)


def _levels_at(lines: pd.DataFrame, link_mbit: int, nodes: int, per_node: int) -> Levels:
    """Return the lines per hop inside and between nodes, at a rate of the link. Raises ValueError for another rate."""
    hops = {}
    for place, rate in (("inside", 0), ("between", link_mbit)):
        rows = lines[(lines["place"] == place) & (lines["link_mbit"] == rate)]
        if rows.empty:
            raise ValueError(f"no line was fitted {place} at {rate} Mbit/s")
        row = rows.iloc[0]
        hops[place] = per_hop(Link(row["alpha_us"] / 1e6, row["beta_gb_per_s"]), int(row["ranks"]))
    return Levels(hops["inside"], hops["between"], nodes, per_node)


def levels_gain(run: Run) -> pd.DataFrame:
    """Return one row per rate and size: the flat all-reduce beside the hierarchical one.

    Columns: link_mbit, kib, flat_ms, hierarchical_ms, gain (flat over hierarchical), spread_gain, bytes_gain (the same
    of the bytes that were counted), expected_gain (of the bytes, by theory). Of a run with yours also yours_ms and
    yours_over_two (bytes that were counted, of yours over the hierarchical one's).
    """
    keys, wanted = ["link_mbit", "kib"], ["call_ms", "spread_call_ms", "counted_bytes", "link_bytes"]
    by_place = messages(run).set_index(["place", *keys])[wanted]
    flat, two = (by_place.loc[place] for place in ("flat", "hierarchical"))
    table = pd.DataFrame({"flat_ms": flat["call_ms"], "hierarchical_ms": two["call_ms"]})
    table["gain"] = flat["call_ms"] / two["call_ms"]
    shares = flat["spread_call_ms"] / flat["call_ms"] + two["spread_call_ms"] / two["call_ms"]
    table["spread_gain"] = table["gain"] * shares
    table["bytes_gain"] = flat["counted_bytes"] / two["counted_bytes"]
    table["expected_gain"] = flat["link_bytes"] / two["link_bytes"]
    if run.plan.yours:
        yours = by_place.loc["yours"]
        table["yours_ms"] = yours["call_ms"]
        table["yours_over_two"] = yours["counted_bytes"] / two["counted_bytes"]
    return of_run(table.reset_index(), run)


def strategies(run: Run, lines: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row per strategy, rate of the link, micro-batches per step and bucket size.

    Columns: strategy, link_mbit, accumulation, bucket_mb, plain (one micro-batch per step, buckets of torch's own
    size), step_ms, spread_step_ms, count, status, gradient_mib,
    link_mib (what a node's interface has sent per optimizer step), expected_link_mib (theory, without headers),
    compute_ms (the step that sends nothing, of as many micro-batches), efficiency (compute_ms over step_ms) and its
    spread. With `lines` (`two_lines` of the same link) also what they predict: least_efficiency where nothing hides,
    most_efficiency where computing hides all that it can.
    """
    nodes, per_node = _mesh(run)
    table = run.medians(_STEP, "step_ms").merge(_counted(run, _STEP), on=_STEP, how="left")
    gradient_bytes = float(run.rows["gradient_bytes"].max())
    table["gradient_mib"] = gradient_bytes / MIB
    table["link_mib"] = table.pop("counted_bytes") / MIB
    settings = zip(table["strategy"], table["accumulation"], strict=True)
    expected = [
        step_link_bytes(name, gradient_bytes, nodes, per_node, count, **fsdp_passes(run.plan))
        for name, count in settings
    ]
    table["expected_link_mib"] = [size / MIB for size in expected]
    usual = table.loc[table["strategy"] == "ddp", "bucket_mb"].head(1)
    table["plain"] = (table["accumulation"] == 1) & table["bucket_mb"].isin([0.0, *usual])
    alone = table[table["strategy"] == "alone"].set_index("accumulation")
    table["compute_ms"] = table["accumulation"].map(alone["step_ms"])
    shares = table["accumulation"].map(alone["spread_step_ms"] / alone["step_ms"])
    table["efficiency"] = table["compute_ms"] / table["step_ms"]
    table["spread_efficiency"] = table["efficiency"] * (shares + table["spread_step_ms"] / table["step_ms"])
    for column, hides in (("least_efficiency", False), ("most_efficiency", True)):
        rows = table.itertuples()
        table[column] = (
            [_predicted(run, row, lines, gradient_bytes, hides) for row in rows] if lines is not None else None
        )
    return of_run(table, run)


def _predicted(run: Run, row: Any, lines: pd.DataFrame, gradient_bytes: float, hides: bool) -> float:
    """Return the efficiency of a row's setting by the lines of both levels; NaN where nothing is sent."""
    if row.strategy == "alone":
        return math.nan
    levels = _levels_at(lines, row.link_mbit, *_mesh(run))
    overlap = OVERLAPS[row.strategy] if hides else 0.0
    compute_s = row.compute_ms / 1e3 / row.accumulation
    options: dict[str, Any] = {"accumulation": row.accumulation, "calls": calls(run, row), "overlap": overlap}
    options |= fsdp_passes(run.plan)
    return step_of(row.strategy, levels, compute_s, gradient_bytes, **options).efficiency


def fsdp_passes(plan: Any) -> dict[str, float]:
    """Return how often FSDP gathers the model per micro-batch and scatters gradients per step, over the plan's backend.

    What is around the blocks is one group, the root: it stays gathered between forward and backward.
    """
    root = elements(plan.model.root) / plan.model.parameters
    return {"gathers": GATHERS - root, "scatters": SCATTERS if plan.device == "cuda" else GLOO_SCATTERS}


def calls(run: Run, row: Any) -> int:
    """Return in how many messages a step's gradients go: buckets, or the blocks and what is around them."""
    if row.strategy == "ddp":
        return max(1, math.ceil(row.gradient_mib / row.bucket_mb))
    return run.plan.layers + 1


def local_steps(run: Run) -> pd.DataFrame:
    """Return one row per training and step: every, step, loss (mean of ranks and seeds), link_mib sent by a node.

    `final_loss`, in the last step's row alone, is that after the last exchange on text that no rank has seen.
    """
    rows = run.rows.groupby(["every", "iteration"], sort=False)
    table = rows.agg(loss=("loss", "mean"), final_loss=("final_loss", "mean"), sent=("sent_bytes", "max")).reset_index()
    table["link_mib"] = table.pop("sent") / MIB
    return of_run(table.rename(columns={"iteration": "step"}), run)


def exchanges(run: Run) -> pd.DataFrame:
    """Return one row per number of steps between exchanges: what it sends and what it learns.

    Columns: every, final_loss (on text that no rank has seen, mean of the seeds) and spread_final_loss (half their
    range), seeds, link_mib (of a node, one training), expected_link_mib, times_less (bytes of every=1 over these),
    apart (largest difference of two ranks' weights).
    """
    nodes, per_node = _mesh(run)
    rows = run.rows.dropna(subset="final_loss")
    per_seed = rows.groupby(["every", "seed"], sort=False)["final_loss"].mean().groupby("every", sort=False)
    last = rows.groupby("every", sort=False).agg(apart=("apart", "max"), sent=("sent_bytes", "max"))
    spread = (per_seed.max() - per_seed.min()) / 2
    losses = pd.DataFrame({"final_loss": per_seed.mean(), "spread_final_loss": spread, "seeds": per_seed.count()})
    table = losses.join(last).reset_index()
    table["link_mib"] = table.pop("sent") / MIB
    whole = 4 * run.plan.model.parameters
    sizes = [step_link_bytes("local", whole, nodes, per_node, every=int(every)) for every in table["every"]]
    table["expected_link_mib"] = [run.plan.steps * size / MIB for size in sizes]
    most = table.loc[table["every"] == 1, "link_mib"]
    table["times_less"] = (most.iloc[0] if len(most) else math.nan) / table["link_mib"]
    return of_run(table, run)


_THEORY = "theory: two lines, nothing measured"
_SIZES_BYTES = tuple(2**exponent for exponent in range(12, 31, 2))
_PER_NODE = 8  # GPUs of a node that the published tables do not name
_WEIGHT_BYTES = 2  # of bfloat16
_CHUNK = 2**21  # draws of the simulation that are held at a time


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
        for strategy in ("fsdp", "ddp", "hierarchical", "hsdp", "local")
        for count in accumulation
    }
    rows = [(*setting, size / MIB, size / whole) for setting, size in sizes.items()]
    table = pd.DataFrame(rows, columns=["strategy", "accumulation", "link_mib", "times_ddp"])
    return of_source(table, "theory: bytes counted", nodes=nodes, per_node=per_node, every=every)


def needed_links(
    inside: Link,
    alpha_s: float,
    compute_s: float,
    gradient_bytes: float,
    nodes: int,
    per_node: int,
    efficiency: float = 0.9,
) -> pd.DataFrame:
    """Return the link of this α that each strategy needs between nodes for an efficiency, if nothing is hidden.

    Columns: strategy, accumulation, gbit_per_s (infinite where the links inside a node alone take too long).
    """
    levels = Levels(inside, Link(alpha_s, math.inf), nodes, per_node)
    rows = [
        (name, count, needed_gbit_per_s(efficiency, name, levels, compute_s, gradient_bytes, count))
        for name in ("fsdp", "ddp", "hierarchical", "hsdp")
        for count in (1, 4)
    ]
    table = pd.DataFrame(rows, columns=["strategy", "accumulation", "gbit_per_s"])
    return of_source(table, _THEORY, efficiency=efficiency)


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
    sent = pd.Series([least_node_bytes(*setting) for setting in passes], index=rows.index)
    same = (rows["micro_batch"] == first["micro_batch"]) & (first["gpus"] == _PER_NODE)
    alone_s = work / first["tokens_per_second_per_gpu"]
    needed = [link_needed(*setting) for setting in zip(sent, step_s, alone_s.where(same, math.inf), strict=True)]
    table = rows.assign(nodes=nodes.astype(int), step_s=step_s, sent_gb=sent / GB)
    table["efficiency"] = rows["tokens_per_second_per_gpu"] / first["tokens_per_second_per_gpu"]
    table["least_gbit_per_s"] = [link.least_gbit_per_s for link in needed]
    table["unhidden_gbit_per_s"] = [link.unhidden_gbit_per_s for link in needed]
    table["unhidden_gbit_per_s"] = table["unhidden_gbit_per_s"].replace(math.inf, math.nan)
    return made_from(table[table["nodes"] > 1].reset_index(drop=True), published)
