"""What a station sees of the ground that a run stands on: the way to the other nodes, its interface, the run's folder.

It looks only when a kernel asks, after every rank has stood still: nothing disturbs what is measured.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from labkit.engine.folder import why_not
from labkit.engine.run import Run

CONNECT_SECONDS = 3.0  # the kernel of another node answers, even where all its processes are busy
MOST_AT_ONCE = 64


def look(index: int, interface: str, peers: Sequence[Sequence[Any]], run: Run) -> dict[str, Any]:
    """Return `unreachable` (why, by node), `interface` (what is wrong with the own one) and `folder` (why no write).

    `peers` are address and port of each node's station; nobody accepts there, so a connection says nothing.
    """
    others = [peer for peer in range(len(peers)) if peer != index]
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        folder = threads.submit(why_not, run.logs / f"probe-node{index}")
        answers = [*threads.map(lambda peer: _why_unreachable(*peers[peer]), others)]
        unreachable = {str(peer): why for peer, why in zip(others, answers, strict=True) if why}
        return {"unreachable": unreachable, "interface": _state(interface), "folder": folder.result()}


def _why_unreachable(address: str, port: int) -> str:
    """Return why no connection is made to a listener; "" where one is."""
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS):
            return ""
    except TimeoutError:
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)


def _state(interface: str) -> str:
    """Return "is gone" or "is down" where the interface is; "" where it is up."""
    state = psutil.net_if_stats().get(interface)
    return "is gone" if state is None else "" if state.isup else "is down"
