"""By which network interface a node talks to the other nodes of a run, and what it still reaches.

A node probes the others only when a kernel asks, after every rank has stood still: nothing disturbs what is measured.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from labkit.engine.files import why_unwritable
from labkit.engine.run import Run

DISCARD = 9  # a port: no packet is sent to it, a route is looked up
BACKLOG = 4096  # connections that wait to be served: workers of all nodes may come within a moment
CONNECT_SECONDS = 3.0  # the kernel of another node answers, even where all its processes are busy
MOST_AT_ONCE = 64


def choose_interface(name: str) -> tuple[str, str]:
    """Return the interface and its IPv4 address: the one of this name, or the one on which srun reached this node.

    Raises ValueError, naming the interfaces that there are, where none fits.
    """
    address_of = ipv4_addresses()
    if name:
        if name in address_of:
            return name, address_of[name]
        raise ValueError(f"it has no interface {name!r} with an IPv4 address; it has {', '.join(address_of) or 'none'}")
    address = _address_towards(os.environ.get("SLURM_LAUNCH_NODE_IPADDR", ""))
    for interface, candidate in address_of.items():
        if candidate == address:
            return interface, address
    raise ValueError(f"no interface leads to the kernel; set `interface` to one of {', '.join(address_of) or 'none'}")


def listening_socket(address: str) -> socket.socket:
    """Return a socket that listens on this address only, on a port that the system chooses."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(BACKLOG)
    return listener


def ipv4_addresses() -> dict[str, str]:
    """Return the first IPv4 address of each interface that is up."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    address_of = {
        name: next((entry.address for entry in entries if entry.family == socket.AF_INET), "")
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: address for name, address in address_of.items() if address and name in up}


def _address_towards(other: str) -> str:
    """Return the own address of the route to another machine; "" where there is none."""
    if not other:
        return ""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
            route.connect((other, DISCARD))
            return route.getsockname()[0]
    except OSError:
        return ""


def look_around(index: int, interface: str, peers: Sequence[Sequence[Any]], run: Run) -> dict[str, Any]:
    """Return `unreachable` (why, by node), `interface` (what is wrong with the own one) and `folder` (why no write).

    `peers` are address and port of each node's station; nobody accepts there, so a connection says nothing.
    """
    others = [peer for peer in range(len(peers)) if peer != index]
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        folder = threads.submit(why_unwritable, run.logs / f"probe-node{index}")
        answers = [*threads.map(lambda peer: _unreachable_because(*peers[peer]), others)]
        unreachable = {str(peer): why for peer, why in zip(others, answers, strict=True) if why}
        return {"unreachable": unreachable, "interface": _interface_fault(interface), "folder": folder.result()}


def _unreachable_because(address: str, port: int) -> str:
    """Return why no connection is made to a listener; "" where one is."""
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS):
            return ""
    except TimeoutError:
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)


def _interface_fault(interface: str) -> str:
    """Return "is gone" or "is down" where the interface is; "" where it is up."""
    state = psutil.net_if_stats().get(interface)
    return "is gone" if state is None else "" if state.isup else "is down"
