"""What the wires of a topology can carry, by their names."""

from __future__ import annotations

from labkit.node.topology import Topology


def nominal_rates(topology: Topology, link_gb_per_s: float, host_gb_per_s: float) -> list[list[float]]:
    """Return GB/s from each GPU to each other one, one way: NVLinks by their number, else those of the host's link.

    The first GPU's row comes first; the diagonal is 0. Two sockets' link may carry less than the host link of a GPU.
    """
    gpus = [device.name for device in topology.devices if device.kind == "gpu"]

    def rate(a: str, b: str) -> float:
        return topology.path(a, b).nvlinks * link_gb_per_s or host_gb_per_s

    return [[0.0 if a == b else rate(a, b) for b in gpus] for a in gpus]
