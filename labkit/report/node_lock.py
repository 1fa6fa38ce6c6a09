"""One unattended run at a time on a node: a second one would measure the first one's load.

The runs of all users of the node take turns; a file lock in the folder of labkit.engine.locks ends with its process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.engine import locks
from labkit.engine.files import name_of_user

POLL_SECONDS = 0.5
TICKETS, LOCK_FILE = "labkit-batch-", "labkit-batch.lock"
MAYBE_SHARED = "another unattended run may use this node at the same time"


class NodeHeld(RuntimeError):
    """Another unattended run holds the node; the message says whose, since when, and what to do."""


@contextmanager
def hold_node(wait: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the node for what stands inside. Raises NodeHeld where another run holds it and `wait` is False, and
    NoLocksFolder where LABKIT_LOCKS names none; where the folder cannot be used, it warns and goes on.
    """
    try:
        folder = locks.locks_folder()
        ticket = locks.Ticket(folder, TICKETS)
    except locks.LocksUnusable as error:
        warnings.warn(f"{MAYBE_SHARED}: {error}", stacklevel=3)
        yield
        return
    lock = None
    try:
        ticket.write(workers=1, waits="turn")
        lock = _lock_node(folder / LOCK_FILE, ticket, wait, tell)
        ticket.write(workers=1)
        yield
    finally:
        if lock is not None:
            lock.release()
        ticket.release()


def _lock_node(file, ticket: locks.Ticket, wait: bool, tell: Callable[[str], None]) -> locks.Lock | None:
    waited_for = ""
    while True:
        try:
            lock = locks.lock(file)
        except locks.LocksUnusable as error:
            warnings.warn(f"{MAYBE_SHARED}: {error}", stacklevel=4)
            return None
        if lock is not None:
            return lock
        holder = _holder(file.parent, ticket)
        if not wait:
            advice = 'wait for its end with ARGS="--wait", or stop it'
            raise NodeHeld(f"{holder} holds this node for an unattended run: {advice}")
        if holder != waited_for:
            waited_for = holder
            tell(f"waiting: {holder} holds this node for an unattended run")
        time.sleep(POLL_SECONDS)


def _holder(folder, ticket: locks.Ticket) -> str:
    """Return who holds the node and since when, as far as the holder's ticket tells."""
    running = [entry for entry in locks.ticket_entries(folder, besides=ticket.file, prefix=TICKETS) if not entry.waits]
    if not running:
        return "another process"
    user, process = name_of_user(running[0].user), running[0].file.name.removeprefix(TICKETS).split("-")[1]
    since = time.strftime("%H:%M:%S", time.localtime(running[0].since))
    return f"{user} (process {process}, since {since})"
