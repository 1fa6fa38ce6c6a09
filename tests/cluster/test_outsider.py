"""What somebody else on the network between the nodes can do with a run's store, and what not."""

from __future__ import annotations

import multiprocessing
import pickle
import secrets
import socket
from datetime import timedelta

import psutil
import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from labkit.cluster.connectivity import listening_socket
from labkit.engine import rendezvous

SECOND = timedelta(seconds=1)


@pytest.fixture
def run_store():
    """The meeting of a run, as node 0 sees it."""
    listener = listening_socket("127.0.0.1")
    forked = multiprocessing.get_context("fork")
    address = listener.getsockname()
    server = forked.Process(target=rendezvous.serve, args=(*address, listener), daemon=True)
    server.start()
    listener.close()
    yield {
        "address": "127.0.0.1",
        "port": address[1],
        "token": secrets.token_hex(16),
        "nodes": 1,
        "node": 0,
    }
    server.kill()
    server.join()


def outsider(run_store) -> dist.TCPStore:
    return dist.TCPStore(run_store["address"], run_store["port"], None, False, SECOND, False)


def test_the_store_listens_on_the_chosen_address_alone(run_store):
    rendezvous.join_store(run_store, "agents")
    own = [each for each in psutil.net_connections("inet") if each.laddr and each.laddr.port == run_store["port"]]
    assert own and {each.laddr.ip for each in own} == {"127.0.0.1"}
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", run_store["port"]), 0.5)


def test_keys_begin_with_the_runs_token_but_who_knows_it_can_change_them(run_store):
    agents = rendezvous.join_store(run_store, "agents")
    agents.set("size", "2")
    stranger = outsider(run_store)
    assert not stranger.check(["size"])
    assert not stranger.check([f"{secrets.token_hex(16)}/agents/size"])
    stranger.set(f"{run_store['token']}/agents/size", "3")
    assert agents.get("size") == b"3"  # as the README says: the run can be disturbed


def test_nothing_that_the_store_holds_is_unpickled(run_store, monkeypatch):
    """torch's own c10d rendezvous unpickles its state from the store; ours reads none."""
    rendezvous.join_store(run_store, "agents")
    stranger = outsider(run_store)
    for key in ("torch.rendezvous.run", "agents/torch.rendezvous.run"):
        stranger.set(key, pickle.dumps({"code": "of a stranger"}))

    def unpickled(*arguments, **options):
        raise AssertionError("something was unpickled")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, unpickled)
    parameters = RendezvousParameters("rendezvous", "", "run", 1, 1, rendezvous=run_store)
    told = get_rendezvous_handler(parameters).next_rendezvous()
    assert (told.rank, told.world_size) == (0, 1)
    told.store.set("role", "{}")
    assert told.store.get("role") == b"{}"
