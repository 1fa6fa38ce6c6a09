"""The kernel's one session of stations: lent to each launch, replaced where it does not fit, ended with the kernel."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.cluster import job, namespaces
from labkit.cluster.session import NodesSession
from labkit.engine.folder import runs_folder
from labkit.engine.workplace import Settings


class _Kept:
    """The session that this process keeps between two launches."""

    lock = threading.RLock()
    session: NodesSession | None = None


@contextmanager
def lent_nodes(
    module: str, count: int, settings: Settings, tell: Callable[[str], None], limit_s: float, kind: str = "slurm"
) -> Iterator[NodesSession]:
    """Lend stations on so many nodes, which know `module`, for one run; `tell` what is waited for.

    They are started anew where they are gone, where code or settings changed, and for another number of nodes; the job
    is kept where it still fits. `kind` is "slurm", or "namespaces" of this machine. Raises
    ClusterError where no nodes are to be had.
    """
    with _Kept.lock:
        session = _Kept.session
        if session is None or session.allocation.kind != kind or not session.fits(module, count, settings):
            session = _replaced(session, module, count, settings, tell, limit_s, kind)
        session.launches += 1
    try:
        yield session
    finally:
        session.launches -= 1
        _keep_or_leave(session)


def _replaced(
    last: NodesSession | None,
    module: str,
    count: int,
    settings: Settings,
    tell: Callable[[str], None],
    limit_s: float,
    kind: str,
) -> NodesSession:
    _Kept.session, allocation = None, None
    if last is not None:
        last.leave()
        same = (last.count, last.settings, last.allocation.kind) == (
            count,
            settings,
            kind,
        ) and last.allocation.job().runs
        if same:
            allocation = last.allocation
        else:
            last.allocation.release()
    allocation = allocation or _allocated(count, settings, kind)
    session = None
    try:
        restarts = job.wait_for_nodes(allocation, tell, limit_s).restarts
        tell(f"job {allocation.number} runs; Python starts on {count} node(s)")
        modules = tuple(dict.fromkeys((*(last.modules if last else ()), module)))
        session = NodesSession(modules, allocation, count, settings, restarts)
        session.wait_for_hellos()
    except BaseException:
        if session is not None:
            session.leave()
        allocation.release()
        raise
    _Kept.session = session
    return session


def _allocated(count: int, settings: Settings, kind: str) -> job.Allocation:
    if kind == "namespaces":
        return namespaces.lend(count)
    return job.of_the_kernel(count) or job.submit(count, settings, runs_folder() / ".submitted")


def kept() -> NodesSession | None:
    """Return the stations that this process has, if any."""
    return _Kept.session


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
    with _Kept.lock:
        if not session.launches and session.token == token:
            leave(session)


def leave(session: NodesSession | None = None) -> None:
    """End the stations, and give submitted nodes back."""
    session = session or _Kept.session
    if session is None:
        return
    session.leave()
    session.allocation.release()
    if _Kept.session is session:
        _Kept.session = None


def _forget() -> None:
    """A process forked from a kernel must not end the kernel's stations."""
    _Kept.lock, _Kept.session = threading.RLock(), None


atexit.register(leave)
os.register_at_fork(after_in_child=_forget)
