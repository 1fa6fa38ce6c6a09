"""What two reports say about the sockets of their nodes, beside what is known of them."""

from __future__ import annotations

from labkit.node.topology import parse
from labkit.tables.claims import claim
from labkit.tables.published import published, published_topology
from lessons.topology.tables import on_nodes

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"


def _claimed_nodes(report: str) -> dict[str, int]:
    """Return the NUMA node at which a report's text puts each GPU."""
    table = published("topology_claims")
    return table[table["report"] == report].set_index("gpu")["numa"].to_dict()


@claim(FOUR, "GPUs on each NUMA node: by its text, and by the matrix that it prints")
def sockets_4xh100():
    """Text and matrix differ about GPU1. The matrix comes from the driver. What the text concludes about near and far
    memory does not hold for its node."""
    matrix = parse(published_topology(FOUR))
    wired = {device.name: device.numa for device in matrix.devices if device.kind == "gpu"}
    return on_nodes(_claimed_nodes(FOUR)), on_nodes(wired), _claimed_nodes(FOUR) == wired


@claim(EIGHT, "GPUs on each NUMA node: by its text")
def sockets_8xh100():
    """The report shows its matrix as a picture, which we do not have as text. Halves of an 8-GPU board on two sockets
    are usual."""
    return on_nodes(_claimed_nodes(EIGHT)), None, None


@claim(EIGHT, "A balanced layout: the GPUs per node, and those of the four GPUs that its programs use")
def balanced_8xh100():
    """By its own text the eight GPUs are balanced. Its programs use GPUs 0 to 3, which all hang at one node. Host
    memory of the other node is far from every GPU in use."""
    node_of_gpu = _claimed_nodes(EIGHT)
    used = [node_of_gpu[f"GPU{index}"] for index in range(4)]
    counts, used_counts = ([nodes.count(node) for node in (0, 1)] for nodes in ([*node_of_gpu.values()], used))
    return " | ".join(map(str, counts)), " | ".join(map(str, used_counts)), used_counts[0] == used_counts[1]
