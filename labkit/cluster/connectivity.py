"""By which network interface a node talks to the other nodes of a run."""

from __future__ import annotations

import os
import socket

import psutil

DISCARD = 9  # a port: no packet is sent to it, a route is looked up
BACKLOG = 4096  # connections that wait to be served: workers of all nodes may come within a moment


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
