"""Two lines, inside a node and between nodes: bytes and seconds of all-reduces and steps, before anything runs.

A cluster has n nodes of g GPUs each, N = n·g. `whole_bytes` S is one tensor. A link's rate is for one direction; all
GPUs of a node share the link to the other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from labkit.theory.alpha_beta import Link as Link
from labkit.theory.sizes import GB
from labkit.theory.traffic import ring_bytes


def link_bytes(method: str, whole_bytes: float, nodes: int, per_node: int) -> float:
    """Return the bytes that one node sends to the other nodes in one all-reduce, by all its ranks together.

    "inside": no rank of another node takes part. "between": a ring of one rank per node. "flat": a ring of all ranks in
    their order, so that one rank per node sends to another node. "hierarchical": reduce-scatter inside, then each rank
    all-reduces its part with the ranks of the same place in the other nodes, then all-gather inside.
    Raises ValueError for an unknown method.
    """
    ring = {"inside": 1, "between": nodes, "flat": nodes * per_node, "hierarchical": nodes}
    if method not in ring:
        raise ValueError(f"method {method!r} is none of {', '.join(ring)}")
    return ring_bytes(whole_bytes, ring[method]) if nodes > 1 else 0.0


def least_node_bytes(passes: float, whole_bytes: float, nodes: int) -> float:
    """Return the least that a node sends, by any algorithm, for `passes` all-gathers or reduce-scatters of S bytes.

    A node needs what the other nodes hold: (n − 1)/n of S in each pass. An all-reduce has two passes. Adding in the
    switch would need less.
    """
    return passes * (nodes - 1) / nodes * whole_bytes


def per_hop(link: Link, ranks: int) -> Link:
    """Return a line per hop from one that was fitted to all-reduces of `ranks` ranks: a ring has 2(ranks − 1) hops."""
    return Link(link.alpha_s / (2 * (ranks - 1)), link.beta_gb_per_s, link.residual)


@dataclass(frozen=True)
class Levels:
    """Two lines, inside a node and between nodes, for n nodes of g ranks; each α is that of one hop.

    Methods return seconds. In a ring all ranks send at the same time, so the slowest hop sets the pace.
    """

    inside: Link
    between: Link
    nodes: int
    per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node

    def ring_pass_s(self, whole_bytes: float) -> float:
        """Return the time of an all-gather or a reduce-scatter over all ranks: N − 1 times the slowest hop's."""
        lines = (self.inside, self.between) if self.nodes > 1 else (self.inside,)
        return max(self._pass_s(link, whole_bytes, self.ranks) for link in lines)

    def inside_pass_s(self, whole_bytes: float) -> float:
        """Return the time of an all-gather or a reduce-scatter among the ranks of one node."""
        return self._pass_s(self.inside, whole_bytes, self.per_node)

    def between_s(self, whole_bytes: float) -> float:
        """Return the time of g all-reduces between nodes, each of a g-th of the bytes: their rings share the link."""
        return 2 * self._pass_s(self.between, whole_bytes, self.nodes)

    def flat_s(self, whole_bytes: float) -> float:
        """Return the time of an all-reduce in one ring over all ranks."""
        return 2 * self.ring_pass_s(whole_bytes)

    def hierarchical_s(self, whole_bytes: float) -> float:
        """Return the time of an all-reduce in three phases: scattered inside, reduced between, gathered inside."""
        return 2 * self.inside_pass_s(whole_bytes) + self.between_s(whole_bytes)

    def tree_s(self, whole_bytes: float) -> float:
        """Return the time of the same three phases with a tree between nodes: 2·log₂ n latencies instead of 2(n − 1).

        Two trees that use each link in both directions keep the ring's bytes (Sanders, Speck and Träff, 2009).
        """
        levels = math.ceil(math.log2(self.nodes))
        sent_s = self.between_s(whole_bytes) - self.between_s(0)
        return 2 * self.inside_pass_s(whole_bytes) + 2 * levels * self.between.alpha_s + sent_s

    @staticmethod
    def _pass_s(link: Link, whole_bytes: float, ranks: int) -> float:
        return (ranks - 1) * link.seconds(whole_bytes / ranks)


def mesh_groups(nodes: int, per_node: int) -> list[list[list[int]]]:
    """Return the groups of ranks of a hierarchical all-reduce: those inside each node, those between nodes.

    Ranks count through a node before the next one, as torchrun numbers them. The ranks of a group between nodes have
    the same place in their nodes.
    """
    inside = [[node * per_node + place for place in range(per_node)] for node in range(nodes)]
    return [inside, [list(group) for group in zip(*inside, strict=True)]]


STRATEGIES = ("alone", "ddp", "hierarchical", "fsdp", "hsdp", "local")
NAMES = {
    "ddp": "DDP, one flat ring",
    "hierarchical": "DDP, two levels",
    "tree": "DDP, two levels, tree",
    "fsdp": "FSDP over all GPUs",
    "hsdp": "HSDP",
    "local": "local steps",
}
BITS = 8
GATHERS = 2  # of FSDP's weights per micro-batch: in forward and in backward
SCATTERS = 1  # of its gradients per step: the micro-batches before the last add up theirs
GLOO_SCATTERS = 2  # gloo reduces and scatters by a whole all-reduce, two passes instead of one
_SLOW, _FAST, _HALVINGS = 1e-6, 1e9, 100  # GB/s: slower and faster than any link, and steps from one to the other
_ROUNDING = 1e-9  # relative, of a division that comes out even


def step_link_bytes(
    strategy: str,
    gradient_bytes: float,
    nodes: int,
    per_node: int,
    accumulation: int = 1,
    every: float = 1,
    gathers: float = GATHERS,
    scatters: float = SCATTERS,
) -> float:
    """Return the bytes that one node sends to the other nodes per optimizer step of `accumulation` micro-batches.

    "ddp": one flat ring per step (`no_sync` before the last micro-batch). "hierarchical": the same in two levels.
    "fsdp": `gathers` all-gathers per micro-batch and `scatters` reduce-scatters per step over all ranks, weights and
    gradients of one size.
    "hsdp": sharded inside a node, so only the gradients' shards travel, once per step. "local": DDP's bytes once every
    `every` steps (DiLoCo, arXiv:2311.08105), on average. Raises ValueError for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is none of {', '.join(STRATEGIES)}")
    if strategy == "alone" or nodes == 1:
        return 0.0
    if strategy == "fsdp":
        passes = accumulation * gathers + scatters
        return passes / 2 * link_bytes("flat", gradient_bytes, nodes, per_node)
    method = "flat" if strategy in ("ddp", "local") else "hierarchical"
    return link_bytes(method, gradient_bytes, nodes, per_node) / (every if strategy == "local" else 1)


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
    gathers: float = GATHERS,
    scatters: float = SCATTERS,
) -> Step:
    """Return the optimizer step by the lines of both levels; strategies are those of `step_link_bytes` without "local".

    "tree" is "hierarchical" with a tree between nodes instead of a ring.
    `compute_s` is one micro-batch's, without communication. The bytes go in `calls` equal messages. `overlap` is the
    share of computing during which they may travel: DDP's backward of the last micro-batch is 2/3 of that micro-batch;
    FSDP gathers in each. `gathers` and `scatters` are those of `step_link_bytes`.
    """
    passes = accumulation * gathers + scatters
    whole_s, hidden_s = accumulation * compute_s, overlap * compute_s
    exchange_s: dict[str, Callable[[float], float]] = {
        "alone": lambda size: 0.0,
        "ddp": levels.flat_s,
        "hierarchical": levels.hierarchical_s,
        "tree": levels.tree_s,
        "fsdp": lambda size: passes * levels.ring_pass_s(size),
        "hsdp": lambda size: passes * levels.inside_pass_s(size) + levels.between_s(size),
    }
    if strategy not in exchange_s:
        raise ValueError(f"strategy {strategy!r} is none of {', '.join(exchange_s)}")
    communication_s = calls * exchange_s[strategy](gradient_bytes / calls)
    window_s = accumulation * hidden_s if strategy in ("fsdp", "hsdp") else hidden_s
    return Step(whole_s, communication_s, max(0.0, communication_s - window_s))


def needed_gbit_per_s(
    efficiency: float, strategy: str, levels: Levels, compute_s: float, gradient_bytes: float, accumulation: int = 1
) -> float:
    """Return the link between nodes with which a step reaches the efficiency, if nothing is hidden; infinite for never.

    Of `levels` only the line inside a node and both α count.
    """

    def sending_s(rate: float) -> float:
        cluster = Levels(levels.inside, Link(levels.between.alpha_s, rate), levels.nodes, levels.per_node)
        return step_of(strategy, cluster, compute_s, gradient_bytes, accumulation=accumulation).communication_s

    allowed_s = accumulation * compute_s * (1 / efficiency - 1)
    if allowed_s <= sending_s(math.inf):
        return math.inf
    slow, fast = _SLOW, _FAST
    for _ in range(_HALVINGS):  # a faster link never takes longer
        middle = math.sqrt(slow * fast)
        slow, fast = (slow, middle) if sending_s(middle) <= allowed_s else (middle, fast)
    return BITS * fast


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
