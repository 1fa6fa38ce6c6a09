"""Two lines, inside a node and between nodes: bytes and seconds of an all-reduce, flat and hierarchical.

A cluster has n nodes of g GPUs each, N = n·g. `whole_bytes` S is one tensor. A link's rate is for one direction; all
GPUs of a node share the link to the other nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.theory.lines import Link as Link


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
    return 2 * (ring[method] - 1) / ring[method] * whole_bytes if nodes > 1 else 0.0


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
        """Return the time of an all-gather or a reduce-scatter over all ranks: (N − 1)(α + S/(N·β))."""
        return self._pass_s(self.between if self.nodes > 1 else self.inside, whole_bytes, self.ranks)

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
