"""The node room: what this machine is, how its devices are wired, and what they can do at best.

    inventory.py   GPUs, CPUs, memory, driver, versions → Node, with its JSON
    gpus.py        what NVML says about the GPUs, and which of them CUDA shows
    network.py     network cards and the rate of their links
    occupancy.py   which process of which user holds how much GPU memory
    wiring.py      nvidia-smi's matrix of this machine, or NVML's where that cannot be read
    shown.py       which node's wiring a page shows: this one's or a recorded one's
    topology.py    `nvidia-smi topo -m` → links, NUMA nodes, the path between any two devices
    counters.py    what the driver counts of one GPU: clocks, power, errors
    faults.py      what driver and kernel know of faults: errors, links, limits, Xids → findings
    xids.py        Xid and SXid messages of the kernel log
    xids.csv       per Xid: whether it is a fault, and its meaning in short
    host.py        load, pressure, quota and memory of the host
    conditions.py  a run's state of host and GPUs before, during and after, as its files hold it
    comparability.py  key figures of conditions, and what differs between two runs
    limits.py      datasheet rates → the least time for bytes or FLOPs; measurements that beat physics
    specs.csv      per GPU: HBM, NVLink, PCIe, dense TFLOP/s by precision, with the source

Knows nothing of runs and labs, imports no torch, and pandas only where a table is asked for.
"""

from labkit.node.gpus import Gpu, pairs_without_peer_access, what_is_lacking
from labkit.node.inventory import Node, here, why_no_gpu_is_visible, why_no_more_gpus
from labkit.node.occupancy import free_bytes, holders, used_mib
from labkit.node.shown import wiring_of
from labkit.node.topology import parse as parse_topology

__all__ = [
    "Gpu",
    "Node",
    "free_bytes",
    "here",
    "holders",
    "pairs_without_peer_access",
    "parse_topology",
    "used_mib",
    "what_is_lacking",
    "why_no_gpu_is_visible",
    "why_no_more_gpus",
    "wiring_of",
]
