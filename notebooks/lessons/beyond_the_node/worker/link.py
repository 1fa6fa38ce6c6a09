"""The link between two namespaces: its rate is set at both ends, and the kernel counts what each end has sent."""

from __future__ import annotations

import os
import subprocess

import psutil

from labkit.engine.worker import Worker
from labkit.node.network import LENT_LINK

BURST_S = 0.25e-3  # of the rate: what may leave at full speed after a pause
LEAST_BURST = 3_100  # bytes: two packets
QUEUE = "400ms"  # what waits longer than this for its turn is dropped


def interface_name() -> str:
    """Return the name of the interface that leads to the other nodes."""
    return os.environ.get("NCCL_SOCKET_IFNAME", "").lstrip("=")


def set_link_rate(worker: Worker, link_mbit: int) -> None:
    """Set this node's end of the link to a rate in Mbit/s (0: none); one rank per node does it, all wait for it.

    Raises RuntimeError for a link that is not one between namespaces of this machine, and where the kernel refuses.
    """
    if interface_name() == LENT_LINK:
        if worker.local_rank == 0:
            _set_rate(link_mbit)
    elif link_mbit:
        raise RuntimeError(f"{interface_name()!r} is a real link, which keeps its rate: set link_mbit=(0,)")
    worker.barrier()


def _set_rate(link_mbit: int) -> None:
    burst = max(LEAST_BURST, round(BURST_S * link_mbit * 1e6 / 8))
    limited = ["tbf", "rate", f"{link_mbit}mbit", "burst", f"{burst}b", "latency", QUEUE]
    rule = limited if link_mbit else ["pfifo"]
    done = subprocess.run(
        ["tc", "qdisc", "replace", "dev", LENT_LINK, "root", *rule],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise RuntimeError(f"the link cannot be set to {link_mbit} Mbit/s: {done.stderr.strip()}")


def sent_bytes() -> int:
    """Return what this node has sent to others so far, with the headers of its packets; 0 where nothing is counted."""
    counted = psutil.net_io_counters(pernic=True, nowrap=False).get(interface_name())
    return counted.bytes_sent if counted else 0
