"""The kernel's one session of stations: lent to each launch, replaced where it does not fit, ended with the kernel."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.cluster.allocation import Allocation, running_job
from labkit.cluster.session import NodesSession
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings


class _Cache:
    """The session that this process keeps between two launches."""

    lock = threading.RLock()
    session: NodesSession | None = None


@contextmanager
def nodes_session(
    module: str, count: int, settings: Settings, allocation: Allocation, tell: Callable[[str], None], limit_s: float
) -> Iterator[NodesSession]:
    """Lend stations on so many nodes of an allocation, which know `module`, for one run; `tell` what is waited for.

    They are started anew where they are gone, where code or settings changed, and for another number of nodes or
    another allocation. Raises ClusterError where the allocation has ended, and where another launch of this kernel
    uses stations that do not fit this one.
    """
    with _Cache.lock:
        session = _Cache.session
        if session is None or session.allocation != allocation or not session.fits(module, count, settings):
            session = _renewed_session(session, module, count, settings, allocation, tell, limit_s)
        session.launches += 1
    try:
        yield session
    finally:
        with _Cache.lock:
            session.launches -= 1


def _renewed_session(
    last: NodesSession | None,
    module: str,
    count: int,
    settings: Settings,
    allocation: Allocation,
    tell: Callable[[str], None],
    limit_s: float,
) -> NodesSession:
    if last is not None and last.launches:
        raise ClusterError("another launch of this kernel uses the nodes, and not as this one would: wait for its end")
    leave()
    restarts = running_job(allocation, tell, limit_s).restarts
    tell(f"job {allocation.number} runs; Python starts on {count} node(s)")
    modules = tuple(dict.fromkeys((*(last.modules if last else ()), module)))
    session = NodesSession(modules, allocation, count, settings, restarts)
    try:
        session.wait_for_stations()
    except BaseException:
        session.leave()
        raise
    _Cache.session = session
    return session


def leave() -> None:
    """End the stations; the allocation stays."""
    session, _Cache.session = _Cache.session, None
    if session is not None:
        session.leave()


def _forget() -> None:
    """A process forked from a kernel must not end the kernel's stations."""
    _Cache.lock, _Cache.session = threading.RLock(), None


atexit.register(leave)
os.register_at_fork(after_in_child=_forget)
