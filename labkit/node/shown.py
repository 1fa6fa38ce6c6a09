"""Which node's wiring a page shows: this one's, or a recorded one's where this one has none to show."""

import os
from dataclasses import replace

import pynvml

from labkit.node.gpus import ask, nvml, why_none_is_visible
from labkit.node.inventory import Node
from labkit.node.topology import Topology, TopologyError


def wiring_of(node: Node, recorded: Node) -> tuple[Node, Topology]:
    """Return this node and the wiring of its visible GPUs; the recorded node's where this one has none to show.

    The wiring's note says why it is not what nvidia-smi prints here.
    """
    if node.has_gpus:
        try:
            return node, node.topology()
        except TopologyError as error:
            why = f"The wiring of this node is unknown ({error})"
    else:
        why = _no_gpu()
    return recorded, replace(recorded.topology(), note=f"{why}, so the map shows the recorded {recorded.label}.")


def _no_gpu() -> str:
    with nvml() as works:
        count = (works and ask(pynvml.nvmlDeviceGetCount)) or 0
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not count:
        why = why_none_is_visible(variable)
        return why[0].upper() + why[1:]
    hidden = "" if variable is None else f" (CUDA_VISIBLE_DEVICES={variable!r} hides them)"
    return f"This node has {count} GPU{'s' * (count > 1)} and none is visible{hidden}"
