"""The kernel's one session of stations: lent to each launch, replaced where it does not fit, ended with the kernel."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.cluster import namespaces
from labkit.cluster.allocation import Allocation, own_allocation, submit_job, wait_for_nodes
from labkit.cluster.session import NodesSession
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings
from labkit.engine.run_folder import runs_folder


class _Cache:
    """The session that this process keeps between two launches."""

    lock = threading.RLock()
    session: NodesSession | None = None


@contextmanager
def nodes_session(
    module: str, count: int, settings: Settings, tell: Callable[[str], None], limit_s: float, kind: str = "slurm"
) -> Iterator[NodesSession]:
    """Lend stations on so many nodes, which know `module`, for one run; `tell` what is waited for.

    They are started anew where they are gone, where code or settings changed, and for another number of nodes; the job
    is kept where it still fits. `kind` is "slurm", or "namespaces" of this machine. Raises ClusterError where no nodes
    are to be had, and where another launch of this kernel uses stations that do not fit this one.
    """
    with _Cache.lock:
        session = _Cache.session
        if session is None or session.allocation.kind != kind or not session.fits(module, count, settings):
            session = _renewed_session(session, module, count, settings, tell, limit_s, kind)
        session.launches += 1
    try:
        yield session
    finally:
        with _Cache.lock:
            session.launches -= 1
        _keep_or_leave(session)


def _renewed_session(
    last: NodesSession | None,
    module: str,
    count: int,
    settings: Settings,
    tell: Callable[[str], None],
    limit_s: float,
    kind: str,
) -> NodesSession:
    if last is not None and last.launches:
        raise ClusterError("another launch of this kernel uses the nodes, and not as this one would: wait for its end")
    _Cache.session, allocation, session = None, last.allocation if last else None, None
    try:
        if last is not None:
            last.leave()
            fits = (last.count, last.settings, last.allocation.kind) == (count, settings, kind)
            if not (fits and last.allocation.job().is_running):
                last.allocation.release()
                allocation = None
        allocation = allocation or _allocation_of(count, settings, kind)
        restarts = wait_for_nodes(allocation, tell, limit_s).restarts
        tell(f"job {allocation.number} runs; Python starts on {count} node(s)")
        modules = tuple(dict.fromkeys((*(last.modules if last else ()), module)))
        session = NodesSession(modules, allocation, count, settings, restarts)
        session.wait_for_stations()
    except BaseException:
        if session is not None:
            session.leave()
        if allocation is not None:
            allocation.release()
        raise
    _Cache.session = session
    return session


def _allocation_of(count: int, settings: Settings, kind: str) -> Allocation:
    if kind == "namespaces":
        return namespaces.lend_namespaces(count)
    return own_allocation(count) or submit_job(count, settings, runs_folder() / ".submitted")


def _keep_or_leave(session: NodesSession) -> None:
    """After a run: keep the nodes of a submitted job for as long as the settings say."""
    if session.launches or not session.allocation.submitted:
        return
    if session.settings.keep_minutes and session.alive():
        timer = threading.Timer(60.0 * session.settings.keep_minutes, _leave_if_unused, [session, session.token])
        timer.daemon = True
        timer.start()
    else:
        _leave_if_unused(session, session.token)


def _leave_if_unused(session: NodesSession, token: str) -> None:
    """Give the nodes back, unless a launch has used them since the one with this token."""
    with _Cache.lock:
        if not session.launches and session.token == token:
            leave(session)


def leave(session: NodesSession | None = None) -> None:
    """End the stations, and give submitted nodes back."""
    session = session or _Cache.session
    if session is None:
        return
    session.leave()
    session.allocation.release()
    if _Cache.session is session:
        _Cache.session = None


def _forget() -> None:
    """A process forked from a kernel must not end the kernel's stations."""
    _Cache.lock, _Cache.session = threading.RLock(), None


atexit.register(leave)
os.register_at_fork(after_in_child=_forget)
