"""The matrix of a live node: nvidia-smi's text, or the same matrix from NVML where that text cannot be read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pynvml

from labkit.node.gpus import Gpu, ask, nvml
from labkit.node.topology import FROM_NVML, TopologyError, parse

_KINDS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two GPUs on one board
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_SWITCH = "NVSwitch"


def readable_matrix(text: str, gpus: Sequence[Gpu], numa_nodes: Mapping[int, str]) -> str:
    """Return nvidia-smi's text where it can be read, else NVML's matrix below a line that says why.

    `gpus` are all of the machine, `numa_nodes` maps a node to its CPUs ("0-31"). Where NVML does not tell the paths
    either, the text is returned as it is.
    """
    if not (why := _why_unreadable(text, gpus)):
        return text
    matrix = _nvml_matrix(gpus, numa_nodes)
    return f"{FROM_NVML}, because {why}.\n{matrix}" if matrix else text


def _why_unreadable(text: str, gpus: Sequence[Gpu]) -> str:
    """Return half a sentence, "" where the text is a matrix of these GPUs."""
    if not text.strip():
        return "nvidia-smi is missing, or prints nothing"
    try:
        names = {device.name for device in parse(text).devices}
    except TopologyError as error:
        return f"its text is not a matrix that can be read ({error})"
    missing = [f"GPU{gpu.index}" for gpu in gpus if f"GPU{gpu.index}" not in names]
    return f"its matrix lacks {', '.join(missing)}" if missing else ""


def _nvml_matrix(gpus: Sequence[Gpu], numa_nodes: Mapping[int, str]) -> str:
    """Return the GPUs' part of the matrix in nvidia-smi's form; "" where NVML does not tell the path of some pair."""
    with nvml() as works:
        handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, gpu.index) if works else None for gpu in gpus]
        links = [_links_by_peer(handle, gpus) for handle in handles]
        kinds = {(i, i): "X" for i in range(len(gpus))}
        for a, b in combinations(range(len(gpus)), 2):
            count = max(links[a][b], links[b][a]) or min(links[a][_SWITCH], links[b][_SWITCH])
            path = _KINDS.get(ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[a], handles[b]), "")
            kinds[a, b] = kinds[b, a] = f"NV{count}" if count and path else path
    if not all(kinds.values()):
        return ""
    names = [f"GPU{gpu.index}" for gpu in gpus]
    lines = [["", *names, "CPU Affinity", "NUMA Affinity"]]
    for i, gpu in enumerate(gpus):
        cpus = numa_nodes.get(gpu.numa_node, "") if gpu.numa_node is not None else ""
        home = "N/A" if gpu.numa_node is None else str(gpu.numa_node)
        lines.append([names[i], *(kinds[i, j] for j in range(len(gpus))), cpus or "N/A", home])
    return "".join("\t".join(cells) + "\n" for cells in lines)


def _links_by_peer(handle: Any, gpus: Sequence[Gpu]) -> Counter:
    """Return how many NVLinks lead to each GPU, by its place in `gpus`, and to NVSwitch."""
    places = {_bus(gpu.pci_bus_id): place for place, gpu in enumerate(gpus)}
    peers: Counter = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if ask(pynvml.nvmlDeviceGetNvLinkState, handle, link) != pynvml.NVML_FEATURE_ENABLED:
            continue
        kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        # A link whose end is neither a GPU nor a CPU leads to NVSwitch; virtual machines hide its type or its address.
        is_switch = kind not in (pynvml.NVML_NVLINK_DEVICE_TYPE_GPU, pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU)
        is_switch_type = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        place = None if is_switch_type else places.get(_bus(ask(getattr, remote, "busId")))
        peers[_SWITCH if place is None and is_switch else place] += 1
    return peers


def _bus(bus_id: str | None) -> str | None:
    """Return a PCI address without the leading digits of its domain, which tools write in four or eight digits."""
    return bus_id and bus_id.lower()[-12:]
