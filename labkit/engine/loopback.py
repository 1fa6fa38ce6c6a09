"""How the workers of one node meet, where no other user can read or change what they tell each other.

torchrun's own rendezvous is a TCP store that listens on every interface and asks nobody who they are. Here the agent
keeps its part in its own memory, and the workers keep theirs in a file of the agent's private folder.
"""

from __future__ import annotations

from typing import ClassVar

from torch.distributed import HashStore, PrefixStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

ADDRESS = "127.0.0.1"
NO_PORT = 0  # torch's agent hands an address on; nothing listens there


class Settled(RendezvousHandler):
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


class Loopback(Settled):
    """Rendezvous of a single node: there is nobody to wait for."""

    backend = "loopback"

    def __init__(self, parameters: RendezvousParameters):
        self.run_id, self.store = parameters.run_id, HashStore()

    def next_rendezvous(self) -> RendezvousInfo:
        meeting = RendezvousStoreInfo(ADDRESS, NO_PORT)
        return RendezvousInfo(PrefixStore(self.run_id, self.store), 0, 1, meeting)


rendezvous_handler_registry.register(Loopback.backend, Loopback)
