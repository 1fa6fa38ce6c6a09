"""Training steps between nodes before anything runs: bytes, seconds, efficiency, and what a printed speed implies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from labkit.theory.lines import GB, Link
from lessons.beyond_the_node.theory.levels import Levels, link_bytes

STRATEGIES = ("alone", "ddp", "hierarchical", "fsdp", "hsdp", "local")
BITS = 8
FSDP_PASSES = 3  # of S per micro-batch: gathered in forward and in backward, gradients scattered
GLOO_FSDP_PASSES = 4  # gloo reduces and scatters by a whole all-reduce, two passes instead of one
_ROUNDING = 1e-9  # relative, of a division that comes out even


def step_link_bytes(
    strategy: str,
    gradient_bytes: float,
    nodes: int,
    per_node: int,
    accumulation: int = 1,
    every: int = 1,
    passes: float = FSDP_PASSES,
) -> float:
    """Return the bytes that one node sends to the other nodes per optimizer step of `accumulation` micro-batches.

    "ddp": one flat ring per step (`no_sync` before the last micro-batch). "hierarchical": the same in two levels.
    "fsdp": two all-gathers and one reduce-scatter over all ranks per micro-batch, weights and gradients of one size.
    "hsdp": sharded inside a node, so only the gradients' shards travel, once per step. "local": DDP's bytes once every
    `every` steps (DiLoCo, arXiv:2311.08105), on average. Raises ValueError for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is none of {', '.join(STRATEGIES)}")
    if strategy == "alone" or nodes == 1:
        return 0.0
    if strategy == "fsdp":
        return accumulation * passes / 2 * link_bytes("flat", gradient_bytes, nodes, per_node)
    method = "flat" if strategy in ("ddp", "local") else "hierarchical"
    return link_bytes(method, gradient_bytes, nodes, per_node) / (every if strategy == "local" else 1)


def predicted_efficiency(
    strategy: str,
    compute_s: float,
    gradient_bytes: float,
    link: Link,
    nodes: int,
    per_node: int,
    accumulation: int = 1,
    every: int = 1,
    calls: float = 1,
    overlap: float = 0.0,
) -> float:
    """Return computing over the step, 0 to 1: `calls` latencies and the bytes between nodes are all that it waits for.

    `compute_s` is the computing of the whole step; `calls` are calls per exchange. `overlap` is the share of compute_s
    during which bytes may travel: at 0 nothing is hidden.
    """
    sent = step_link_bytes(strategy, gradient_bytes, nodes, per_node, accumulation, every)
    exchanges = {"fsdp": accumulation, "local": 1 / every}.get(strategy, 1)
    communication_s = exchanges * calls * link.alpha_s + sent / (GB * link.beta_gb_per_s) if sent else 0.0
    return compute_s / (compute_s + max(0.0, communication_s - overlap * compute_s))


class Step(NamedTuple):
    """An optimizer step in seconds: computing, communicating, and the part of communicating that nothing hides."""

    compute_s: float
    communication_s: float
    exposed_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.exposed_s

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s


def step_of(
    strategy: str,
    levels: Levels,
    compute_s: float,
    gradient_bytes: float,
    *,
    accumulation: int = 1,
    calls: int = 1,
    overlap: float = 0.0,
    passes: float = FSDP_PASSES,
) -> Step:
    """Return the optimizer step by the lines of both levels; strategies are those of `step_link_bytes` without "local".

    "tree" is "hierarchical" with a tree between nodes instead of a ring.
    `compute_s` is one micro-batch's, without communication. The bytes go in `calls` equal messages. `overlap` is the
    share of computing during which they may travel: DDP's backward of the last micro-batch is 2/3 of that micro-batch;
    FSDP exchanges in each. `passes` are FSDP's per micro-batch, as its backend makes them.
    """
    whole_s, hidden_s = accumulation * compute_s, overlap * compute_s
    exchange_s: dict[str, Callable[[float], float]] = {
        "alone": lambda size: 0.0,
        "ddp": levels.flat_s,
        "hierarchical": levels.hierarchical_s,
        "tree": levels.tree_s,
        "fsdp": lambda size: accumulation * passes * levels.ring_pass_s(size),
        "hsdp": lambda size: accumulation * passes * levels.inside_pass_s(size) + levels.between_s(size),
    }
    if strategy not in exchange_s:
        raise ValueError(f"strategy {strategy!r} is none of {', '.join(exchange_s)}")
    communication_s = calls * exchange_s[strategy](gradient_bytes / calls)
    window_s = accumulation * hidden_s if strategy in ("fsdp", "hsdp") else hidden_s
    return Step(whole_s, communication_s, max(0.0, communication_s - window_s))


def least_accumulation(efficiency: float, compute_s: float, communication_s: float) -> int:
    """Return the fewest micro-batches per exchange that reach the efficiency, if nothing is hidden.

    k·compute/(k·compute + communication) is to be at least `efficiency`; `compute_s` is one micro-batch's. Raises
    ValueError for an efficiency that is not between 0 and 1.
    """
    if not 0 < efficiency < 1:
        raise ValueError(f"efficiency={efficiency}: it lies between 0 and 1, both excluded")
    needed = efficiency * communication_s / ((1 - efficiency) * compute_s)
    return max(1, math.ceil(needed * (1 - _ROUNDING)))


def stalled_share(stall_probability: float, ranks: int) -> float:
    """Return the share of steps in which at least one of `ranks` ranks stalls, if each does so by chance alone."""
    return -math.expm1(ranks * math.log1p(-stall_probability)) if stall_probability < 1 else 1.0


class LinkNeeded(NamedTuple):
    """What a printed speed says of the link of a node, Gbit/s in one direction.

    `least_gbit_per_s` if all communication is hidden: the link cannot have been slower. `unhidden_gbit_per_s` if none
    is: the loss is then all communication; it is infinite where no speed was lost.
    """

    least_gbit_per_s: float
    unhidden_gbit_per_s: float


def link_needed(sent_bytes: float, step_s: float, alone_s: float) -> LinkNeeded:
    """Return which link a printed step needs that sends `sent_bytes` out of each node.

    `alone_s` is the same work without links between nodes, on one node. Sources print speeds; a step is its batch per
    GPU over the speed per GPU.
    """
    gbit, lost_s = BITS * sent_bytes / GB, step_s - alone_s
    return LinkNeeded(gbit / step_s, gbit / lost_s if lost_s > 0 else math.inf)
