"""What a report says about the sockets of its node, beside the matrix of wires that it prints."""

from __future__ import annotations

from operator import eq

from labkit.node.topology import parse
from labkit.tables.claims import Figures
from labkit.tables.published import FOUR, published, published_topology


def _claimed(report: str) -> dict[str, int | None]:
    """Return the NUMA node at which a report's text puts each GPU."""
    table = published("topology_claims")
    return table[table["report"] == report].set_index("gpu")["numa"].to_dict()


def _wired() -> dict[str, int | None]:
    """Return the NUMA node of each GPU by the matrix that the report on 4 × H100 prints."""
    devices = parse(published_topology(FOUR)).devices
    return {device.name: device.numa for device in devices if device.kind == "gpu"}


def _on_nodes(node_of_gpu: dict[str, int | None]) -> str:
    """Return which GPUs hang at each NUMA node, in short: "0, 1 / 2, 3" for two nodes with two GPUs each."""
    nodes = sorted({node for node in node_of_gpu.values() if node is not None})
    members = ([gpu.removeprefix("GPU") for gpu, node in node_of_gpu.items() if node == name] for name in nodes)
    return " / ".join(", ".join(gpus) for gpus in members)


FIGURES = {
    "sockets_4xh100": Figures(lambda: _on_nodes(_claimed(FOUR)), lambda: _on_nodes(_wired()), eq),
}
