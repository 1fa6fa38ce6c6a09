"""Where the workers of one node meet: a store that listens on the loopback interface alone.

torchrun's own rendezvous listens on every interface; no option of it says otherwise.
"""

from __future__ import annotations

import socket

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

ADDRESS = "127.0.0.1"


class Loopback(RendezvousHandler):
    """Rendezvous of a single node: there is nobody to wait for."""

    use_agent_store = True  # the workers meet at the same store

    def __init__(self, parameters: RendezvousParameters):
        self.run_id = parameters.run_id
        listener = socket.create_server((ADDRESS, 0))
        port = listener.getsockname()[1]
        self.store = TCPStore(
            ADDRESS, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
        )

    def get_backend(self) -> str:
        return "loopback"

    def next_rendezvous(self) -> RendezvousInfo:
        meeting = RendezvousStoreInfo(ADDRESS, self.store.port)
        return RendezvousInfo(PrefixStore(self.run_id, self.store), 0, 1, meeting)

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


rendezvous_handler_registry.register("loopback", Loopback)
