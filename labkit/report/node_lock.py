"""One unattended run at a time on a node: a second one would measure the first one's load.

The runs of all users of the node take turns; a file lock in the folder of labkit.engine.locks ends with its process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.engine import locks

POLL_SECONDS = 0.5
LOCK_FILE = "labkit-batch.lock"


class NodeHeld(RuntimeError):
    """Another unattended run holds the node; the message says whose, and what to do."""


@contextmanager
def hold_node(wait: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the node for what stands inside. Raises NodeHeld where another run holds it and `wait` is False, and
    NoLocksFolder where LABKIT_LOCKS names none; where the folder cannot be used, it warns and goes on.
    """
    lock, waited_for = None, ""
    try:
        file = locks.locks_folder() / LOCK_FILE
        while (lock := locks.lock(file)) is None:
            holder = locks.owner(locks.holding_pids(file))
            if not wait:
                advice = 'wait for its end with ARGS="--wait", or stop it'
                raise NodeHeld(f"{holder} holds this node for an unattended run: {advice}")
            if holder != waited_for:
                waited_for = holder
                tell(f"waiting: {holder} holds this node for an unattended run")
            time.sleep(POLL_SECONDS)
    except locks.LocksUnusable as error:
        maybe_shared = "another unattended run may use this node at the same time"
        warnings.warn(f"{maybe_shared}: {error}", stacklevel=3)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
