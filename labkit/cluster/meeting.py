"""Where the agents and the workers of several nodes meet: a TCP store of the first node, on one interface only.

torchrun's own c10d rendezvous listens on every interface, and unpickles what anybody writes to its store: whoever
reaches its port runs code as this user. Here each node knows its place from Slurm, so nothing is negotiated, and what
is read from the store is text and numbers. The store still asks nobody who they are, and lists its keys to everybody: a
run's keys begin with its own random token, which keeps runs apart and nobody out. Whoever reaches the port can read and
change keys: the run can be disturbed, no code can be run.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from labkit.engine.loopback import Settled

PATIENCE = timedelta(minutes=5)  # for the other nodes to come


@functools.cache
def served(address: str, port: int, descriptor: int) -> TCPStore:
    """Serve the store on a socket that listens already, as long as this process lives."""
    kind: Any = TCPStore
    return kind(address, port, None, True, PATIENCE, False, master_listen_fd=descriptor)


def joined(meeting: dict[str, Any], who: str) -> Store:
    """Return the run's store as agents or workers (`who`) see it."""
    if who == "agents" and meeting["node"] == 0:
        served(meeting["address"], meeting["port"], meeting["listener"])
    client = TCPStore(meeting["address"], meeting["port"], None, False, PATIENCE, False)
    return PrefixStore(f"{meeting['token']}/{who}", client)


class Meeting(Settled):
    """Rendezvous of nodes that know their places from Slurm."""

    backend = "meeting"

    def __init__(self, parameters: RendezvousParameters):
        self.run_id, self.meeting = parameters.run_id, parameters.config["meeting"]

    def next_rendezvous(self) -> RendezvousInfo:
        meeting = self.meeting
        told = RendezvousStoreInfo(meeting["address"], meeting["port"])
        return RendezvousInfo(joined(meeting, "agents"), meeting["node"], meeting["nodes"], told)


rendezvous_handler_registry.register(Meeting.backend, Meeting)
