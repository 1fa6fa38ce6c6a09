"""A launch hears one interrupt, and none while it cleans up, so that no second one leaves anything behind.

A command that still imports has nothing to clean up, and ends with a sentence.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

AGAIN_SECONDS = 1.0  # from a launch's interrupt to its clean-up, which begins within milliseconds


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put an interrupt off until what stands inside is done. An interrupted import leaves half a module behind."""
    with Interrupts() as interrupts, interrupts.later():
        yield


INTERRUPTED = 130  # the status of a command that SIGINT has ended, as shells give it


def leave_when_interrupted() -> None:
    """Have SIGINT end this process at once, with a sentence, until `heed_interrupts`; where it is ignored, it stays so.

    For a command that has only begun to import: an import that is interrupted may raise anything.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def heed_interrupts() -> None:
    """Have SIGINT raise KeyboardInterrupt again: from here on there is something to clean up, or to report."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"interrupted before anything ran\n")
    os._exit(INTERRUPTED)


class Interrupts:
    """`with Interrupts() as interrupts`: the first SIGINT raises KeyboardInterrupt, those after it do nothing.

    Python drops what is raised in a finaliser (object.__del__), as of a file that the garbage collector closes. Such an
    interrupt is raised by the next `raise_if_dropped`; where none comes, the next SIGINT after AGAIN_SECONDS raises.
    Only the main thread is interrupted; in another one, and where SIGINT is ignored, this changes nothing.
    """

    def __init__(self) -> None:
        self._came = self._heeded = self._busy = False
        self._raised_at = -math.inf

    def __enter__(self) -> Self:
        self._before = None
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if not self._busy:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._came and not self._heeded and time.monotonic() > self._raised_at + AGAIN_SECONDS:
            self._raised_at = time.monotonic()
            raise KeyboardInterrupt

    def raise_if_dropped(self) -> None:
        """Raise an interrupt that has come: whoever can call this has not been interrupted by it."""
        if self._came and not self._heeded:
            raise KeyboardInterrupt

    @contextmanager
    def later(self) -> Iterator[None]:
        """Put an interrupt off until what stands inside is done; after one, this is the clean-up, so none follows."""
        self._heeded = self._heeded or isinstance(sys.exc_info()[1], KeyboardInterrupt)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            self._raise_pending()
