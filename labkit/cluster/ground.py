"""From what the stations see to what a run on several nodes has lost: the network between them, or its folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from labkit.cluster.session import NodesSession
from labkit.engine.run import Run

MEND_NETWORK = "Mend the network between the nodes, or set `interface` in cluster.toml to another one"
OTHER_FOLDER = "Set LABKIT_RUNS to a folder on another file system"


class Lost(NamedTuple):
    """What the run has lost, in a clause, what to do, and at which node it is lost (None: at all of them)."""

    what: str
    advice: str
    node: int | None
    folder: bool = False  # it takes no writes: nothing can be told through it


def lost(run: Run, session: NodesSession) -> Lost | None:
    """Have every station look, and this kernel, too; return what is lost, None where nothing is."""
    with ThreadPoolExecutor(1) as beside:
        tried = beside.submit(run.unwritable)
        looks = session.look(run)
        here = tried.result()
    unwritable = {index: look["folder"] for index, look in looks.items() if look["folder"]}
    if here or unwritable:
        node = None if here or len(unwritable) == session.count else min(unwritable)
        where = "" if node is None else f" from {_name(node, session)}"
        why = here or unwritable[min(unwritable)]
        return Lost(f"the run's folder {run.folder} cannot be written{where} ({why})", OTHER_FOLDER, node, folder=True)
    broken = [(index, int(other)) for index, look in looks.items() for other in look["unreachable"]]
    if not broken:
        return None
    # The node that most of the broken ways begin or end at; of two, the one whose interface is down, else the later.
    down = {index for index, look in looks.items() if look["interface"]}
    node = max(range(session.count), key=lambda index: (sum(index in way for way in broken), index in down, index))
    begin, end = next((way for way in broken if way[0] == node), next(way for way in broken if node in way))
    why = looks[begin]["unreachable"][str(end)]
    if node in down:
        why += f"; {session.networks[node]['interface']} on {session.hosts[node]} {looks[node]['interface']}"
    way = f"those of {_name(end, session)} over {session.networks[begin]['interface']} ({why})"
    silent = ", ".join(_name(index, session) for index in range(session.count) if index not in looks)
    state = f"{silent} cannot be asked" if silent else "both nodes live" if session.count == 2 else "all nodes live"
    return Lost(f"the workers of {_name(begin, session)} cannot reach {way}, and {state}", MEND_NETWORK, node)


def _name(node: int, session: NodesSession) -> str:
    return f"node {node} ({session.hosts[node]})"
