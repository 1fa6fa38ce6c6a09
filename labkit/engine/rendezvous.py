"""How the workers and agents of a run meet, where no stranger can run code as this user.

torchrun's own rendezvous is a TCP store that listens on every interface, asks nobody who they are, and unpickles what
anybody writes to it. Here every node knows its place, so nothing is negotiated. On one node the agent keeps its part
in its own memory, and the workers keep theirs in a file of the agent's private folder: no other user can read or change
it. Several nodes meet at a TCP store of the first one, on one interface only, and what is read from it is text and
numbers. That store still asks nobody who they are, and lists its keys to everybody: a run's keys begin with its own
random token, which keeps runs apart and nobody out. Whoever reaches the port can read and change keys: the run can be
disturbed, no code can be run.
"""

from __future__ import annotations

import os
import signal
import socket
from datetime import timedelta
from typing import Any, ClassVar

from torch.distributed import HashStore, PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from labkit.engine.processes import end_with

ADDRESS = "127.0.0.1"
NO_PORT = 0  # torch's agent hands an address on; nothing listens there


class FixedRendezvous(RendezvousHandler):
    """Rendezvous of agents that know their places: nobody negotiates, joins later or closes it."""

    backend: ClassVar[str]
    run_id: str

    @property
    def use_agent_store(self) -> bool:
        return False

    def get_backend(self) -> str:
        return self.backend

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        return

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        return True


class LoopbackRendezvous(FixedRendezvous):
    """Rendezvous of a single node: there is nobody to wait for."""

    backend = "loopback"

    def __init__(self, parameters: RendezvousParameters):
        self.run_id, self.store = parameters.run_id, HashStore()

    def next_rendezvous(self) -> RendezvousInfo:
        rendezvous = RendezvousStoreInfo(ADDRESS, NO_PORT)
        return RendezvousInfo(PrefixStore(self.run_id, self.store), 0, 1, rendezvous)


rendezvous_handler_registry.register(LoopbackRendezvous.backend, LoopbackRendezvous)

PATIENCE = timedelta(minutes=5)  # for the other nodes to come


def serve(address: str, port: int, listener: socket.socket) -> None:
    """Serve the store on a socket that listens already, as long as this process lives: until the forkserver ends."""
    end_with(os.getppid())
    kind: Any = TCPStore
    store = kind(address, port, None, True, PATIENCE, False, master_listen_fd=listener.detach())
    while store:
        signal.pause()


def join_store(rendezvous: dict[str, Any], who: str) -> Store:
    """Return the run's store as agents or workers (`who`) see it."""
    client = TCPStore(rendezvous["address"], rendezvous["port"], None, False, PATIENCE, False)
    return PrefixStore(f"{rendezvous['token']}/{who}", client)


class StoreRendezvous(FixedRendezvous):
    """Rendezvous of nodes that know their places from Slurm."""

    backend = "rendezvous"

    def __init__(self, parameters: RendezvousParameters):
        self.run_id, self.rendezvous = parameters.run_id, parameters.config["rendezvous"]

    def next_rendezvous(self) -> RendezvousInfo:
        rendezvous = self.rendezvous
        address = RendezvousStoreInfo(rendezvous["address"], rendezvous["port"])
        return RendezvousInfo(join_store(rendezvous, "agents"), rendezvous["node"], rendezvous["nodes"], address)


rendezvous_handler_registry.register(StoreRendezvous.backend, StoreRendezvous)
